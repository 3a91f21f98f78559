//! Tests of the memory that a port's stages use: warm stages do not allocate memory for frames in either direction,
//! whether or not the wire has space.

use grosso::{
    Meta,
    features::{Device, Features},
    meta::Gso,
    reassemble::{ReassemblyMode as Buffers, ReassemblyRules},
    tunnel::esp::{EspMode, KeyMaterial, NoAssociation, SecurityAssociation},
};
use grosso_io::{
    Port, Transmitted,
    memory::{MemoryPort, wire},
    stage::{EspOptions, EspStage, Fragmentation, FragmentationOptions},
};
use grosso_rig::allocator::allocations;
use grosso_testkit::Packet;
use grosso_wire::LinkType;

fn association(spi: u32) -> Result<SecurityAssociation, NoAssociation> {
    let key = KeyMaterial::aes_gcm(&[spi as u8; 20])?;
    Ok(SecurityAssociation::new(spi, EspMode::Transport, key))
}

type Host = EspStage<Fragmentation<MemoryPort>>;

fn host(port: MemoryPort, buffers: Buffers, out: u32, back: u32) -> Host {
    let mut options = FragmentationOptions::new(7);
    options.mtu = Some(1500);
    options.rules = Some(ReassemblyRules::new(buffers));
    let port = Fragmentation::new(port, &options).expect("options without contradictions");
    let [out, back] = [out, back].map(|spi| association(spi).expect("a good key"));
    EspStage::new(port, EspOptions::new(out, back, 0)).expect("associations without contradictions")
}

/// Moves frames over a wire that cannot hold all fragments of a frame at once, and returns the number of frames that
/// arrived.
fn pass(from: &mut Host, to: &mut Host, frames: &[(Vec<u8>, Meta)], now_ns: u64) -> usize {
    let mut arrived = 0;
    let mut take = |to: &mut Host| {
        let mut buffers = [const { None }; 8];
        let mut count = 0;
        let received = to.receive(now_ns, buffers.len(), &mut |frame| {
            buffers[count] = Some(frame.buffer);
            count += 1;
        });
        assert_eq!(received.expect("a wire"), count);
        buffers.into_iter().flatten().for_each(|buffer| to.recycle(buffer));
        arrived += count;
        count > 0 || to.deadline() == Some(0)
    };
    for (frame, meta) in frames {
        while from.transmit(&[frame], meta).expect("a wire") == Transmitted::NoRoom {
            take(to);
        }
        while from.flush().expect("a wire") == Transmitted::NoRoom {
            take(to);
        }
        while take(to) {}
    }
    arrived
}

#[test]
fn no_frame_is_allocated_for_once_the_stages_are_warm() {
    let ipv6 = || Packet::new().ethernet(|e| e).ipv6(|ip| ip);
    let meta = |size| Meta { gso: Gso::every(size), ..Meta::default() };
    let frames = [
        (ipv6().udp(|u| u).payload_len(60_000).build(), Meta::default()),
        (ipv6().tcp(|t| t).payload_len(20_000).build(), meta(1300)),
        (ipv6().udp(|u| u).payload_len(100).build(), Meta::default()),
        (ipv6().tcp(|t| t).payload_len(20_000).build(), meta(4000)),
    ];
    // The wire keeps one buffer for each frame that fits into it, and all buffers of a datagram are held at once.
    for (buffers, room) in [(Buffers::Coalesce, 16), (Buffers::KeepGeometry, 64)] {
        let (near, far) = wire(LinkType::Ethernet, Device::new(Features::NONE), room);
        let (mut near, mut far) =
            (host(near, buffers, 0x101, 0x102), host(far, buffers, 0x102, 0x101));
        let mut round = |number: u64| {
            pass(&mut near, &mut far, &frames, number) + pass(&mut far, &mut near, &frames, number)
        };
        let each = (0..4).map(&mut round).last().expect("rounds");
        assert_eq!(each, 2 * (1 + 16 + 1 + 5), "{buffers:?}");
        let before = allocations();
        let arrived: usize = (4..20).map(&mut round).sum();
        assert_eq!((allocations() - before, arrived), (0, 16 * each), "{buffers:?}");
    }
}
