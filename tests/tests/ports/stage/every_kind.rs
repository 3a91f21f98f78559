//! Tests that packets of every kind of the kit are restored unchanged, even if ports occasionally have no room.

use grosso::{
    Meta,
    features::{Device, Features},
    tunnel::esp::EspMode,
};
use grosso_io::{
    memory::wire,
    stage::{EspOptions, EspStage, Fragmentation, FragmentationOptions},
};
use grosso_testkit::{
    oracle::Link,
    stack::{Place, Stack},
};
use grosso_wire::{Kind, LinkType, Ports, dissect};

use super::ends::{Reluctant, association, counter, fragments, insist, receive};

fn link(stack: &Stack) -> LinkType {
    if stack.link() == Link::Ip { LinkType::Raw } else { LinkType::Ethernet }
}

/// Returns options that fragment even packets with DF. Otherwise, hardly any packet of the kit would be fragmented.
fn options() -> FragmentationOptions {
    let mut options = fragments(1280);
    options.ignore_df = true;
    options
}

/// Returns a frame with DF, identification and header checksum cleared, because fragmenting an IPv4 packet with DF
/// changes them.
fn comparable(frame: &[u8], link: LinkType) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let stack = dissect(&frame, link, &Ports::NONE);
    let ip = stack.layers().iter().find(|layer| matches!(layer.kind, Kind::Ipv4 | Kind::Ipv6));
    if let Some(ip) = ip.filter(|ip| ip.kind == Kind::Ipv4) {
        let at = usize::from(ip.offset);
        [4, 5, 10, 11].into_iter().for_each(|byte| frame[at + byte] = 0);
        frame[at + 6] &= !0x40;
    }
    frame
}

#[test]
fn what_is_cut_is_joined() {
    for stack in Stack::all() {
        let link = link(&stack);
        let (near, far) = wire(link, Device::new(Features::NONE), 64);
        let mut near = Fragmentation::new(Reluctant::new(near, 0.5), &options()).unwrap();
        let mut far = Fragmentation::new(Reluctant::new(far, 0.5), &options()).unwrap();
        for (number, len) in [3000, 100, 1400, 9000].into_iter().enumerate() {
            let frame = stack.packet(&Place::default()).payload_len(len).build();
            insist(&mut near, &frame, &Meta::default());
            let received = receive(&mut far, number as u64);
            assert_eq!(received.len(), 1, "{stack:?} {len}: {:?}", near.stats().cut);
            assert_eq!(comparable(&received[0].0, link), comparable(&frame, link), "{stack:?}");
        }
        assert_eq!(counter(&mut far, "ip_reasm_oks"), 3, "{stack:?}");
        assert_eq!((far.held_bytes(), far.inner().outside), (0, 0));
    }
}

#[test]
fn what_is_encrypted_and_cut_is_joined_and_decrypted() {
    for stack in Stack::all() {
        let link = link(&stack);
        let (near, far) = wire(link, Device::new(Features::NONE), 64);
        let host = |port, out, back| {
            let port = Fragmentation::new(Reluctant::new(port, 0.5), &options()).unwrap();
            let [out, back] = [out, back].map(|spi| association(spi, EspMode::Transport));
            EspStage::new(port, EspOptions::new(out, back, 0)).unwrap()
        };
        let (mut near, mut far) = (host(near, 0x101, 0x102), host(far, 0x102, 0x101));
        for (number, len) in [3000, 100, 1400, 9000].into_iter().enumerate() {
            let frame = stack.packet(&Place::default()).payload_len(len).build();
            insist(&mut near, &frame, &Meta::default());
            let received = receive(&mut far, number as u64);
            assert_eq!(received.len(), 1, "{stack:?} {len}: {:?}", near.stats());
            assert_eq!(comparable(&received[0].0, link), comparable(&frame, link), "{stack:?}");
        }
        assert_eq!(counter(&mut far, "esp_in_packets"), 4, "{stack:?}");
        assert_eq!(far.stats().in_dropped.total(), 0, "{stack:?}");
        assert_eq!(far.inner().inner().outside, 0);
    }
}
