//! Tests tunnels and fragmentation over a port whose path has, or is reported to have, a smaller MTU than its link.

use std::net::IpAddr;

use grosso::{
    Meta,
    features::{Device, Features},
    tunnel::{Carrier, DontFragment, Endpoint, Header},
};
use grosso_io::{
    Port, Transmitted, delegate_port,
    memory::{MemoryPort, wire},
    stage::{Fragmentation, FragmentationOptions, TunnelOptions, TunnelStage},
};
use grosso_testkit::Packet;
use grosso_wire::LinkType;

use super::ends::{counter, receive, send};

/// A port with a known path MTU, which also records reported path MTUs.
struct Pathed {
    port: MemoryPort,
    mtu: usize,
    hint: usize,
    proven: Option<usize>,
}

impl Port for Pathed {
    delegate_port!(port: link, device, receive, recycle, transmit, flush, deadline);
    delegate_port!(port: descriptors, counters, is_finished);

    fn path_mtu(&self) -> Option<usize> {
        Some(self.mtu)
    }

    fn path_hint(&self) -> Option<usize> {
        Some(self.hint)
    }

    fn path_proven(&self) -> Option<usize> {
        self.proven
    }
}

/// Number of bytes that IPIP adds to a packet.
const AROUND: usize = 20;

fn ipip(hint: usize, change: impl FnOnce(&mut TunnelOptions)) -> (TunnelStage<Pathed>, MemoryPort) {
    tunnel(Header::Ip, hint, change)
}

fn tunnel(
    header: Header,
    hint: usize,
    change: impl FnOnce(&mut TunnelOptions),
) -> (TunnelStage<Pathed>, MemoryPort) {
    let [local, remote]: [IpAddr; 2] = ["192.0.2.1", "192.0.2.2"].map(|end| end.parse().unwrap());
    let endpoint = Endpoint::new(local, remote, header, Carrier::Ip);
    let mut options = TunnelOptions::new(endpoint, 7);
    change(&mut options);
    let (near, far) = wire(LinkType::Raw, Device::new(Features::NONE), 64);
    let port = Pathed { port: near, mtu: 1500, hint, proven: None };
    (TunnelStage::new(port, options).unwrap(), far)
}

fn datagram(df: bool, len: usize) -> Vec<u8> {
    Packet::new().ipv4(|ip| ip.df(df)).udp(|udp| udp).payload_len(len - 28).build()
}

/// Sends a frame through the tunnel, and returns whether the first resulting packet forbids fragmentation; `None` if no
/// packet arrives.
fn forbids(near: &mut TunnelStage<Pathed>, far: &mut MemoryPort, frame: &[u8]) -> Option<bool> {
    assert_eq!(send(near, frame), Transmitted::Taken);
    receive(far, 0).first().map(|(packet, _)| packet[6] & 0x40 != 0)
}

#[test]
fn no_hint_makes_a_tunnel_carry_less_and_longer_packets_may_be_fragmented() {
    let (mut near, mut far) = ipip(68, |_| ());
    assert_eq!((near.mtu(), near.path_mtu()), (Some(1480), Some(1480)));
    assert_eq!(forbids(&mut near, &mut far, &datagram(true, 1480)), Some(false));
    assert_eq!(forbids(&mut near, &mut far, &datagram(true, 48)), Some(true));
    assert_eq!(forbids(&mut near, &mut far, &datagram(true, 49)), Some(false));
    // A limit of this host's own link is not a hint, so it is enforced.
    assert_eq!(forbids(&mut near, &mut far, &datagram(true, 1481)), None);
    assert_eq!(forbids(&mut near, &mut far, &datagram(false, 1481)), Some(false));
    assert_eq!(counter(&mut near, "tunnel_out_too_big"), 1);
}

#[test]
fn what_is_proven_counts_down_to_the_floor() {
    for (hint, floor, expected) in [
        (1400, Some(1300), 1400),
        (1200, Some(1300), 1300),
        (1600, Some(1300), 1500),
        (68, Some(100), 576),
        (68, Some(9000), 1500),
        (68, None, 1500),
    ] {
        let (mut near, mut far) = ipip(hint, |options| options.mtu_min = floor);
        assert_eq!(near.mtu(), Some(1500 - AROUND), "a hint alone");
        near.inner_mut().proven = Some(hint);
        near.receive(0, 1, &mut |_| ()).unwrap();
        let mtu = expected - AROUND;
        assert_eq!(near.mtu(), Some(mtu), "{hint} {floor:?}");
        assert!(forbids(&mut near, &mut far, &datagram(true, mtu)).is_some());
        assert_eq!(forbids(&mut near, &mut far, &datagram(true, mtu + 1)), None);
    }
    // Without a configured minimum, the proven path MTU has no effect.
    let (near, _) = ipip(68, |options| options.mtu = Some(1000));
    assert_eq!(near.mtu(), Some(1000));
}

/// Tests a tag of an inner frame. It does not count towards the device MTU, but it does count towards the path MTU.
#[test]
fn tags_inside_take_room_of_the_path_and_none_of_the_device() {
    let gretap = || Header::Gre { key: None, checksum: false, sequence: false, ethernet: true };
    let around = 20 + 4 + 14;
    let frame = |tags: usize, len: usize| {
        let ethernet = Packet::new().ethernet(|e| e);
        let tagged = (0..tags).fold(ethernet, |packet, _| packet.vlan(|v| v));
        tagged.ipv4(|ip| ip.df(true)).udp(|udp| udp).payload_len(len - 28).build()
    };
    let told = |near: &mut TunnelStage<Pathed>| {
        let message = receive(near, 0).pop().expect("a message").0;
        let icmp = message.len() - 576 + 20;
        assert_eq!(message[icmp..icmp + 2], [3, 4]);
        usize::from(u16::from_be_bytes([message[icmp + 6], message[icmp + 7]]))
    };
    for tags in 0..3 {
        let bytes = 4 * tags;
        // Cases: only the link MTU applies; the path MTU is proven; and it is proven and the device MTU leaves no room
        // for tags, or leaves room.
        for (proven, wanted, fits) in [
            (None, None, 1500 - around - bytes),
            (Some(1300), None, 1300 - around - bytes),
            (Some(1300), Some(1300 - around), 1300 - around - bytes),
            (Some(1300), Some(1300 - around - 8), 1300 - around - 8),
        ] {
            let (mut near, mut far) = tunnel(gretap(), proven.unwrap_or(1500), |options| {
                options.mtu = wanted;
                options.mtu_min = Some(1280);
            });
            near.inner_mut().proven = proven;
            near.receive(0, 1, &mut |_| ()).unwrap();
            assert_eq!(forbids(&mut near, &mut far, &frame(tags, fits)), Some(true), "{tags}");
            assert_eq!(forbids(&mut near, &mut far, &frame(tags, fits + 1)), None, "{tags}");
            assert_eq!(told(&mut near), fits, "{tags} {proven:?} {wanted:?}");
        }
        // If the path MTU is only reported but not proven, no packet is lost, and packets that fit with their tags are
        // not fragmented.
        let (mut near, mut far) = tunnel(gretap(), 1300, |_| ());
        let fits = 1300 - around - bytes;
        assert_eq!(forbids(&mut near, &mut far, &frame(tags, fits)), Some(true), "{tags}");
        assert_eq!(forbids(&mut near, &mut far, &frame(tags, fits + 1)), Some(false), "{tags}");
    }
}

#[test]
fn packets_of_any_length_pass_where_their_wish_is_ignored() {
    let ignored = |options: &mut TunnelOptions| {
        options.endpoint.dont_fragment = DontFragment::Ignored;
    };
    let (mut near, mut far) = ipip(1500, ignored);
    assert_eq!(forbids(&mut near, &mut far, &datagram(true, 1400)), Some(false));
    assert_eq!(forbids(&mut near, &mut far, &datagram(true, 1600)), Some(false));
}

#[test]
fn packets_beyond_the_reported_path_mtu_are_fragmented_if_no_kernel_does_it() {
    let (near, mut far) = wire(LinkType::Raw, Device::new(Features::NONE), 64);
    let mut options = FragmentationOptions::new(7);
    options.follows_path = true;
    let mut near =
        Fragmentation::new(Pathed { port: near, mtu: 1500, hint: 1500, proven: None }, &options)
            .unwrap();
    let packet = Packet::new().ipv6(|ip| ip).udp(|udp| udp).payload_len(1452).build();
    assert_eq!(send(&mut near, &packet), Transmitted::Taken);
    assert_eq!(receive(&mut far, 0), [(packet.clone(), Meta::default())]);
    near.inner_mut().hint = 1280;
    assert_eq!(send(&mut near, &packet), Transmitted::Taken);
    let fragments: Vec<usize> = receive(&mut far, 0).iter().map(|(bytes, _)| bytes.len()).collect();
    assert_eq!(fragments.len(), 2);
    assert!(fragments.iter().all(|len| *len <= 1280), "{fragments:?}");
    near.inner_mut().hint = 1500;
    assert_eq!(send(&mut near, &packet), Transmitted::Taken);
    assert_eq!(receive(&mut far, 0), [(packet, Meta::default())]);
}
