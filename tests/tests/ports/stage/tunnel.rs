//! Tests the stage that encapsulates and decapsulates packets.

use std::net::IpAddr;

use grosso::{
    Meta,
    checksum::{self, Checksum},
    features::{Device, Features},
    meta::Gso,
    segment::{Outgoing, Segments},
    tunnel::{Carrier, Endpoint, Header, esp::EspMode},
};
use grosso_io::{
    Port, Transmitted,
    memory::{MemoryPort, wire},
    stage::{EspOptions, EspStage, EthernetLink, ICMP_BURST, TunnelOptions, TunnelStage},
};
use grosso_testkit::{
    Packet,
    oracle::{self, Link},
};
use grosso_wire::{LinkType, Ports};

use super::{
    ends::{Reluctant, association, counter, insist, receive, send},
    formats::{VXLAN, formats, other_end, udp},
};

/// The endpoints' IPv4 and IPv6 addresses.
const OUTSIDE: [[&str; 2]; 2] = [["192.0.2.1", "192.0.2.2"], ["2001:db8::1", "2001:db8::2"]];

fn outside(family: usize) -> [IpAddr; 2] {
    OUTSIDE[family].map(|text| text.parse().unwrap())
}

fn options(endpoint: Endpoint) -> TunnelOptions {
    TunnelOptions::new(endpoint, 0x5eed)
}

/// Creates both endpoints of a tunnel, over a wire with this link type between devices with these features.
fn ends(
    endpoint: &Endpoint,
    link: LinkType,
    features: Features,
) -> (TunnelStage<MemoryPort>, TunnelStage<MemoryPort>) {
    let (left, right) = wire(link, Device::new(features), 256);
    let end = |port, endpoint, [source, destination]: [u8; 2]| {
        let mut options = options(endpoint);
        let address = |last| [2, 0, 0, 0, 0, last];
        options.link =
            Some(EthernetLink { source: address(source), destination: address(destination) });
        TunnelStage::new(port, options).unwrap()
    };
    (end(left, endpoint.clone(), [1, 2]), end(right, other_end(endpoint), [2, 1]))
}

/// Returns a TCP packet for a tunnel, with this payload length.
fn packet(link: LinkType, is_ipv4: bool, payload: usize) -> Vec<u8> {
    let packet = match link {
        LinkType::Ethernet => Packet::new().ethernet(|e| e),
        _ => Packet::new(),
    };
    let packet = if is_ipv4 { packet.ipv4(|ip| ip) } else { packet.ipv6(|ip| ip) };
    packet.tcp(|tcp| tcp).payload_len(payload).build()
}

/// Returns the packets of a frame on the wire, with complete checksums. A frame without GSO is one packet.
fn on_the_wire(frame: &[u8], meta: &Meta, link: LinkType) -> Vec<Vec<u8>> {
    let Some(_) = meta.gso else {
        let mut frame = frame.to_vec();
        if let Checksum::Partial { start, offset } = meta.checksum {
            checksum::complete(&mut frame, start, offset).unwrap();
        }
        return vec![frame];
    };
    let (slices, complete) = ([frame], Outgoing::default());
    let mut cut = Segments::new(&slices, meta, link, &Ports::ASSIGNED, complete).unwrap();
    let (mut packets, mut buffer) = (Vec::new(), vec![0; cut.packet_len_max()]);
    while let Some(segment) = cut.write_next(&mut buffer).unwrap() {
        packets.push(buffer[..segment.len()].to_vec());
    }
    packets
}

/// Sets the checksum field of a frame to the pseudo-header sum, and returns metadata with a partial checksum.
fn seeded(frame: &mut [u8], link: LinkType, gso: Option<Gso>) -> Meta {
    let front = if link == LinkType::Ethernet { 14 } else { 0 };
    let ip = if frame[front] >> 4 == 4 { 20 } else { 40 };
    let tcp = front + ip;
    let length = (frame.len() - tcp) as u32;
    let sum = match ip {
        20 => {
            let addresses: [[u8; 4]; 2] =
                [0, 4].map(|at| frame[front + 12 + at..][..4].try_into().unwrap());
            grosso_checksum::pseudo_v4(addresses[0], addresses[1], 6, length)
        }
        _ => {
            let addresses: [[u8; 16]; 2] =
                [0, 16].map(|at| frame[front + 8 + at..][..16].try_into().unwrap());
            grosso_checksum::pseudo_v6(&addresses[0], &addresses[1], 6, length)
        }
    };
    frame[tcp + 16..tcp + 18].copy_from_slice(&sum.fold().to_be_bytes());
    let checksum = Checksum::Partial { start: tcp as u16, offset: 16 };
    Meta { checksum, gso, ..Meta::default() }
}

#[test]
fn packets_and_superframes_come_out_of_every_tunnel_as_they_went_in() {
    for family in [0, 1] {
        for (name, endpoint) in formats(outside(family)) {
            for link in [LinkType::Raw, LinkType::Ethernet] {
                for features in [Features::NONE, Features::ALL] {
                    let (mut near, mut far) = ends(&endpoint, link, features);
                    let inside = near.link();
                    for is_ipv4 in [true, false] {
                        let context = || format!("{name} over {link:?}, {features:?}, {is_ipv4}");
                        let one = packet(inside, is_ipv4, 700);
                        let mut many = packet(inside, is_ipv4, 50_000);
                        let meta = seeded(&mut many, inside, Gso::every(1300));
                        let mut partial = one.clone();
                        let partial_meta = seeded(&mut partial, inside, None);
                        for (frame, meta) in
                            [(&one, Meta::default()), (&partial, partial_meta), (&many, meta)]
                        {
                            // The first slice contains the headers, and the payload is divided between the slices.
                            let slices = [&frame[..100], &frame[100..333], &frame[333..]];
                            let sent = near.transmit(&slices, &meta).unwrap();
                            assert_eq!(sent, Transmitted::Taken, "{}", context());
                            let received = receive(&mut far, 1);
                            let packets = received
                                .iter()
                                .flat_map(|(frame, meta)| on_the_wire(frame, meta, inside));
                            let expected = on_the_wire(frame, &meta, inside);
                            assert!(packets.eq(expected), "{}", context());
                            let is_numbered =
                                matches!(endpoint.header, Header::Gre { sequence: true, .. });
                            if meta.gso.is_some() {
                                let is_whole = features == Features::ALL && !is_numbered;
                                assert_eq!(received.len() == 1, is_whole, "{}", context());
                            }
                        }
                    }
                    for end in [&mut near, &mut far] {
                        end.counters(&mut |counter, value| {
                            assert!(!counter.is_loss || value == 0, "{name}: {}", counter.name);
                        });
                    }
                }
            }
        }
    }
}

#[test]
fn packets_on_the_wire_agree_with_the_literal_oracle() {
    for family in [0, 1] {
        for (name, endpoint) in formats(outside(family)) {
            // The oracle recognizes only assigned ports and complete checksums.
            let is_known = !name.contains("fou") && !name.contains("remcsum");
            let (near, mut far) = wire(LinkType::Ethernet, Device::new(Features::NONE), 256);
            let mut given = options(endpoint);
            given.link = Some(EthernetLink { source: [2; 6], destination: [4; 6] });
            let mut near = TunnelStage::new(near, given).unwrap();
            let inside = near.link();
            let mut frame = packet(inside, true, 20_000);
            let meta = seeded(&mut frame, inside, Gso::every(1000));
            assert_eq!(near.transmit(&[&frame], &meta).unwrap(), Transmitted::Taken);
            let frames = receive(&mut far, 1);
            assert_eq!(frames.len(), 20, "{name}");
            for (frame, meta) in frames {
                assert_eq!(meta, Meta::default());
                assert!(frame.starts_with(&[4, 4, 4, 4, 4, 4, 2, 2, 2, 2, 2, 2]));
                assert!(!is_known || oracle::is_right(&frame, Link::Ethernet), "{name}");
            }
        }
    }
}

/// Creates a VXLAN tunnel and the wire below it.
fn vxlan(change: impl FnOnce(&mut TunnelOptions)) -> (TunnelStage<MemoryPort>, MemoryPort) {
    let (near, far) = wire(LinkType::Raw, Device::new(Features::NONE), 256);
    let [local, remote] = outside(0);
    let carrier = Carrier::Udp(udp(4789, true, false));
    let mut options = options(Endpoint::new(local, remote, VXLAN, carrier));
    change(&mut options);
    (TunnelStage::new(near, options).unwrap(), far)
}

/// Returns a packet from the tunnel's peer, modified by `change`.
fn arriving(change: impl Fn(Packet) -> Packet) -> Vec<u8> {
    let outer = Packet::new().ipv4(|ip| ip.source([192, 0, 2, 2]).destination([192, 0, 2, 1]));
    let outer = change(outer.udp(|udp| udp.destination_port(4789)));
    outer.ethernet(|e| e.source([2, 0, 0, 0, 0, 9])).ipv4(|ip| ip).udp(|udp| udp).build()
}

#[test]
fn w30_what_is_not_the_tunnels_is_dropped_by_name() {
    let (mut near, mut far) = vxlan(|options| options.address = Some([2, 0, 0, 0, 0, 9]));
    let ours = |packet: Packet| packet.vxlan(|v| v.vni(7));
    let mut damaged = arriving(ours);
    *damaged.last_mut().unwrap() ^= 1;
    let whole = arriving(ours);
    for (frame, name) in [
        (arriving(ours), "tunnel_in_own_address"),
        (arriving(|p| p.vxlan(|v| v.vni(8))), "tunnel_in_foreign_identifier"),
        (arriving(|p| p.geneve(|g| g.vni(7))), "tunnel_in_vxlan_flags"),
        (damaged, "tunnel_in_udp_checksum"),
        (whole[..40].to_vec(), "tunnel_in_truncated"),
        (packet(LinkType::Raw, true, 10), "tunnel_in_no_tunnel"),
        (Vec::new(), "tunnel_in_no_tunnel"),
    ] {
        let before = counter(&mut near, name);
        assert_eq!(send(&mut far, &frame), Transmitted::Taken);
        assert!(receive(&mut near, 1).is_empty(), "{name}");
        assert_eq!(counter(&mut near, name), before + 1, "{name}");
    }
}

// Rules: B29
#[test]
fn a_superframe_of_a_tunnel_s_datagrams_is_cut_and_each_is_judged_alone() {
    let datagram = |vni: u32| {
        let outer = Packet::new().ipv4(|ip| ip).udp(|udp| udp).vxlan(move |v| v.vni(vni));
        let whole = outer.ethernet(|e| e.source([2, 0, 0, 0, 0, 9])).ipv4(|ip| ip);
        whole.udp(|udp| udp).payload_len(8).build()[28..].to_vec()
    };
    let arrive = |datagrams: usize| {
        let (mut near, mut far) = vxlan(|_| ());
        let vni = |number| if number == 1 { 8 } else { 7 };
        let payload: Vec<u8> = (0..datagrams).flat_map(|number| datagram(vni(number))).collect();
        let outer = Packet::new().ipv4(|ip| ip.source([192, 0, 2, 2]).destination([192, 0, 2, 1]));
        let outer = outer.udp(|udp| udp.destination_port(4789)).payload(&payload);
        let (frame, start, offset) = outer.build_superframe();
        let checksum = Checksum::Partial { start: start as u16, offset: offset as u16 };
        let gso = Gso::every((payload.len() / datagrams) as u16);
        let meta = Meta { gso, checksum, ..Meta::default() };
        assert_eq!(far.transmit(&[&frame], &meta).unwrap(), Transmitted::Taken);
        let taken = receive(&mut near, 1);
        let names = ["cut_before", "packets", "foreign_identifier", "superframe"];
        let counts = names.map(|name| counter(&mut near, &format!("tunnel_in_{name}")));
        let whole = &datagram(7)[8..];
        assert!(taken.iter().all(|(packet, meta)| packet == whole && meta.gso.is_none()));
        (taken.len(), counts)
    };
    assert_eq!(arrive(5), (4, [1, 4, 1, 0]));
    assert_eq!(arrive(128), (127, [1, 127, 1, 0]));
    assert_eq!(arrive(129), (0, [0, 0, 0, 1]), "more than any sender makes one of");
}

/// Tests superframes from a kernel on the same host, which leaves TCP checksums and segmentation to a device. A socket
/// does not report the segment size of these superframes.
#[test]
fn a_superframe_that_no_device_cut_is_cut_to_what_the_tunnel_carries() {
    let arrive = |payload: usize, is_open: bool, family: usize| {
        let (mut near, mut far) = vxlan(|options| options.mtu = Some(1450));
        let outer = Packet::new().ipv4(|ip| ip.source([192, 0, 2, 2]).destination([192, 0, 2, 1]));
        let outer = outer.udp(|udp| udp.destination_port(4789).checksum_raw(0));
        let inner = outer.vxlan(|v| v.vni(7)).ethernet(|e| e).vlan(|tag| tag);
        let inner = if family == 0 { inner.ipv4(|ip| ip) } else { inner.ipv6(|ip| ip) };
        let inner = inner.tcp(|tcp| if is_open { tcp.checksum_seed() } else { tcp });
        assert_eq!(send(&mut far, &inner.payload_len(payload).build()), Transmitted::Taken);
        let taken = receive(&mut near, 1);
        let gso = taken[0].1.gso;
        assert_eq!(counter(&mut near, "tunnel_in_left_whole"), u64::from(gso.is_some()));
        let packets = on_the_wire(&taken[0].0, &taken[0].1, LinkType::Ethernet);
        (gso, packets.iter().map(Vec::len).collect::<Vec<_>>())
    };
    assert_eq!(arrive(3000, true, 0), (Gso::every(1410), vec![1468, 1468, 18 + 40 + 180]));
    assert_eq!(arrive(3000, true, 1), (Gso::every(1390), vec![1468, 1468, 18 + 60 + 220]));
    // A packet that fits stays whole, and so does a packet with a complete checksum, which comes from a link with a
    // larger MTU.
    assert_eq!(arrive(1410, true, 0), (None, vec![1468]));
    assert_eq!(arrive(3000, false, 0), (None, vec![3058]));
}

/// Tests UDP superframes, for which a socket reports the segment size.
#[test]
fn the_sum_of_a_superframe_that_no_device_made_is_made_for_each_packet() {
    let (mut near, mut far) = vxlan(|_| ());
    let outer = Packet::new().ipv4(|ip| ip.source([192, 0, 2, 2]).destination([192, 0, 2, 1]));
    let outer = outer.udp(|udp| udp.destination_port(4789).checksum_raw(0));
    let inner = outer.vxlan(|v| v.vni(7)).ethernet(|e| e).ipv4(|ip| ip);
    let frame = inner.udp(|udp| udp.checksum_seed()).payload_len(2500).build();
    let meta = Meta { gso: Gso::every(1000), ..Meta::default() };
    assert_eq!(far.transmit(&[&frame], &meta).unwrap(), Transmitted::Taken);
    let taken = receive(&mut near, 1);
    let (packet, told) = &taken[0];
    assert_eq!((told.gso, counter(&mut near, "tunnel_in_left_open")), (meta.gso, 1));
    assert_eq!(told.checksum, Checksum::Partial { start: 34, offset: 6 });
    let packets = on_the_wire(packet, told, LinkType::Ethernet);
    assert_eq!(packets.iter().map(Vec::len).collect::<Vec<_>>(), [1042, 1042, 542]);
}

#[test]
fn nothing_of_hostile_frames_comes_out_and_every_buffer_goes_back() {
    let (near, mut far) = wire(LinkType::Raw, Device::new(Features::NONE), 256);
    let near = Reluctant::new(near, 0.0);
    let [local, remote] = outside(0);
    let carrier = Carrier::Udp(udp(4789, true, true));
    let endpoint = Endpoint::new(local, remote, VXLAN, carrier);
    let mut near = TunnelStage::new(near, options(endpoint)).unwrap();
    let mut dice = fastrand::Rng::with_seed(5);
    let good = arriving(|p| p.vxlan(|v| v.vni(7)));
    let mut taken = 0;
    for _ in 0..20_000 {
        let mut frame = good.clone();
        frame.truncate(dice.usize(..=frame.len()));
        for _ in 0..dice.usize(..4) {
            if let Some(byte) = dice.choice(&mut frame) {
                *byte = dice.u8(..);
            }
        }
        assert_eq!(send(&mut far, &frame), Transmitted::Taken);
        taken += receive(&mut near, 1).len() as u64;
    }
    let mut dropped = 0;
    near.counters(&mut |counter, value| dropped += if counter.is_loss { value } else { 0 });
    assert_eq!(taken + dropped, 20_000, "each is taken out or dropped by one name");
    assert_eq!(taken, counter(&mut near, "tunnel_in_packets"));
    assert_eq!(near.inner().outside, 0);
}

#[test]
fn frames_without_space_wait_without_loss_or_duplication() {
    let (near, far) = wire(LinkType::Raw, Device::new(Features::NONE), 4096);
    let [local, remote] = outside(0);
    let endpoint = Endpoint::new(local, remote, VXLAN, Carrier::Udp(udp(4789, true, false)));
    let mut far = TunnelStage::new(far, options(other_end(&endpoint))).unwrap();
    let mut near = TunnelStage::new(Reluctant::new(near, 0.7), options(endpoint)).unwrap();
    for i in 0..20 {
        let mut frame = packet(LinkType::Ethernet, i % 2 == 0, 30_000 + i);
        let meta = seeded(&mut frame, LinkType::Ethernet, Gso::every(1000));
        insist(&mut near, &frame, &meta);
        let packets = receive(&mut far, 1).into_iter().map(|(packet, _)| packet);
        assert!(packets.eq(on_the_wire(&frame, &meta, LinkType::Ethernet)), "{i}");
    }
}

#[test]
fn s49_senders_of_oversized_packets_get_rate_limited_icmp_errors() {
    let (mut near, mut far) = vxlan(|options| options.mtu = Some(1400));
    assert_eq!((near.mtu(), near.path_mtu()), (Some(1400), Some(1400)));
    let long = |payload: usize| {
        let frame = Packet::new().ethernet(|e| e).ipv4(|ip| ip.df(true)).tcp(|tcp| tcp);
        frame.payload_len(payload).build()
    };
    assert_eq!(send(&mut near, &long(1360)), Transmitted::Taken);
    assert_eq!(receive(&mut far, 1).len(), 1, "1400 bytes of IP fit");
    assert_eq!(send(&mut near, &long(1361)), Transmitted::Taken);
    assert_eq!(near.deadline(), Some(0), "there is a message");
    let told = receive(&mut near, 1);
    assert_eq!(told.len(), 1);
    let message = &told[0].0;
    assert!(oracle::is_right(message, Link::Ethernet));
    assert_eq!((message[23], message[34], message[35]), (1, 3, 4), "fragmentation needed");
    assert_eq!(u16::from_be_bytes([message[40], message[41]]), 1400);
    // A superframe whose packets do not fit also causes one message.
    let meta = Meta { gso: Gso::every(1361), ..Meta::default() };
    assert_eq!(near.transmit(&[&long(9000)], &meta).unwrap(), Transmitted::Taken);
    assert_eq!(receive(&mut near, 1).len(), 1);
    for _ in 0..100 {
        assert_eq!(send(&mut near, &long(1361)), Transmitted::Taken);
    }
    assert!(receive(&mut far, 1).is_empty());
    assert_eq!(receive(&mut near, 1).len(), ICMP_BURST as usize - 2);
    // One more message is allowed per millisecond.
    assert!(receive(&mut near, 1_000_000).is_empty());
    assert_eq!(send(&mut near, &long(1361)), Transmitted::Taken);
    assert_eq!(send(&mut near, &long(1361)), Transmitted::Taken);
    assert_eq!(receive(&mut near, 1_000_001).len(), 1);
    assert_eq!(counter(&mut near, "tunnel_out_too_big"), 51);
    assert_eq!(counter(&mut near, "tunnel_out_too_big_untold"), 53);
}

#[test]
fn a_tunnel_needs_a_link_that_it_can_speak_on() {
    let [local, remote] = outside(0);
    let carrier = || Carrier::Udp(udp(4789, true, false));
    let endpoint = || Endpoint::new(local, remote, VXLAN, carrier());
    let device = Device::new(Features::NONE);
    for link in [LinkType::Ethernet, LinkType::Null] {
        let refused = TunnelStage::new(wire(link, device, 1).0, options(endpoint())).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput, "{refused}");
    }
    let mut other = endpoint();
    other.remote = outside(1)[1];
    let refused = TunnelStage::new(wire(LinkType::Raw, device, 1).0, options(other)).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput, "{refused}");
}

#[test]
fn what_packets_grow_by_when_they_are_encrypted_is_taken_off_what_the_tunnel_carries() {
    let (near, mut far) = vxlan(|options| options.mtu = Some(1400));
    let [out, back] = [0x101, 0x102].map(|spi| association(spi, EspMode::Transport));
    let mut near = EspStage::new(near, EspOptions::new(out, back, 0)).unwrap();
    let mtu = near.path_mtu().unwrap();
    let long = |len: usize| {
        let frame = Packet::new().ethernet(|e| e).ipv4(|ip| ip.df(true)).udp(|udp| udp);
        frame.payload_len(len - 28).build()
    };
    for len in mtu - 4..=mtu {
        assert_eq!(send(&mut near, &long(len)), Transmitted::Taken);
        assert_eq!(receive(&mut far, 1).len(), 1, "{len} of {mtu}");
    }
    assert_eq!(send(&mut near, &long(mtu + 4)), Transmitted::Taken);
    assert!(receive(&mut far, 1).is_empty(), "padding is at most 3 bytes");
}
