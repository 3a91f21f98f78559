//! Tests rules S47 and C40: packets whose checksums or headers the device completes.

use grosso::{
    Meta,
    checksum::{Checksum, complete},
    segment::Outgoing,
};
use grosso_rig::superframe::Superframe;
use grosso_testkit::{
    Packet,
    oracle::{Lengths, Link, is_right, parse},
};

/// A packet and its metadata.
type Known = (Vec<u8>, Meta);

/// Returns the packets segmented from `len` bytes of TCP payload after these headers, in segments of 100 bytes.
fn cut(headers: &Packet, len: usize, outgoing: Outgoing) -> Vec<Known> {
    let packet = headers.clone().tcp(|tcp| tcp).payload_len(len);
    Superframe::new(&packet, 100).cut(outgoing).unwrap()
}

/// Returns the outer headers to test.
fn headers() -> Vec<Packet> {
    let ethernet = || Packet::new().ethernet(|e| e);
    let vxlan = || ethernet().ipv4(|ip| ip).udp(|udp| udp).vxlan(|v| v).ethernet(|e| e);
    vec![
        ethernet().ipv4(|ip| ip),
        ethernet().ipv6(|ip| ip),
        vxlan().ipv4(|ip| ip),
        vxlan().ipv4(|ip| ip).udp(|udp| udp).geneve(|g| g).ethernet(|e| e).ipv6(|ip| ip),
        ethernet().ipv4(|ip| ip).gre(|g| g.checksum()).ipv4(|ip| ip),
        ethernet().ipv6(|ip| ip).udp(|udp| udp).gue(|g| g).gre(|g| g.checksum()).ipv4(|ip| ip),
    ]
}

/// Completes the packet's partial checksum, as a device does.
fn completed((mut packet, meta): Known) -> Vec<u8> {
    let Checksum::Partial { start, offset } = meta.checksum else { panic!("no partial checksum") };
    complete(&mut packet, start, offset).unwrap();
    packet
}

// Rules: C40
#[test]
fn s14_checksums_left_partial_become_the_right_ones() {
    for headers in headers() {
        let software = cut(&headers, 250, Outgoing::default());
        let device = cut(&headers, 250, Outgoing::PARTIAL_CHECKSUMS);
        let device: Vec<_> = device.into_iter().map(completed).collect();
        let software: Vec<_> = software.into_iter().map(|(packet, _)| packet).collect();
        assert_eq!(device, software);
    }
}

#[test]
fn s47_one_packet_of_whole_segments_and_one_of_the_rest() {
    for headers in headers() {
        let packets = cut(&headers, 350, Outgoing::GSO_PARTIAL);
        let lengths: Vec<_> =
            packets.iter().map(|(packet, _)| packet.len() - headers.header_len() - 20).collect();
        assert_eq!(lengths, [300, 50]);
        let [(_, whole), (rest, rest_meta)] = &packets[..] else { panic!("two packets") };
        let gso = whole.gso.unwrap();
        assert_eq!((gso.segments, gso.size()), (3, Some(100)));
        assert_eq!(rest_meta.gso, None);
        assert!(is_right(&completed((rest.clone(), *rest_meta)), Link::Ethernet));
    }
}

#[test]
fn s47_without_a_remainder_there_is_one_packet() {
    for headers in headers() {
        let packets = cut(&headers, 300, Outgoing::GSO_PARTIAL);
        assert_eq!(packets.len(), 1);
        assert_eq!(packets[0].1.gso.unwrap().segments, 3);
    }
}

#[test]
fn s47_one_whole_segment_and_a_remainder_are_plain_packets() {
    for headers in headers() {
        let packets = cut(&headers, 150, Outgoing::GSO_PARTIAL);
        assert_eq!(packets.len(), 2);
        assert!(packets.iter().all(|(_, meta)| meta.gso.is_none()));
    }
}

/// Tests that every length field before the payload describes one segment, because the device repeats the headers
/// unchanged.
// Rules: B5
#[test]
fn s47_lengths_are_those_of_one_segment() {
    for headers in headers() {
        let (packet, _) = cut(&headers, 350, Outgoing::GSO_PARTIAL).remove(0);
        let one = packet.len() - 200;
        let parsed = parse(&packet, Link::Ethernet, Lengths::Whole);
        for layer in &parsed.layers {
            let declared = match layer.name {
                "ipv4" => layer.number("total_len"),
                "ipv6" => layer.number("payload_len") + 40,
                "udp" => layer.number("len"),
                _ => continue,
            };
            assert_eq!(declared as usize, one - layer.offset, "{}", layer.name);
        }
    }
}

/// Tests that repeated headers lose no information: segmenting a frame with repeated headers gives the same packets as
/// segmenting the original in software.
#[test]
fn s47_a_device_that_repeats_the_headers_makes_the_same_packets() {
    for headers in headers() {
        let software = cut(&headers, 300, Outgoing::default());
        let (bytes, meta) = cut(&headers, 300, Outgoing::GSO_PARTIAL).remove(0);
        assert_eq!(Superframe { bytes, meta }.cut(Outgoing::default()).unwrap(), software);
    }
}

#[test]
fn s47_identification_and_sequence_of_the_remainder_continue() {
    let headers = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(7));
    let software = cut(&headers, 350, Outgoing::PARTIAL_CHECKSUMS);
    let partial = cut(&headers, 350, Outgoing::GSO_PARTIAL);
    assert_eq!(partial[1], software[3]);
}

#[test]
fn s47_push_and_fin_are_on_the_remainder() {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|tcp| tcp.psh().fin().cwr());
    let cut = |len| {
        let frame = Superframe::new(&packet.clone().payload_len(len), 100);
        let packets = frame.cut(Outgoing::GSO_PARTIAL).unwrap();
        packets.iter().map(|(packet, _)| packet[47]).collect::<Vec<_>>()
    };
    assert_eq!(cut(350), [0x90, 0x19]);
    assert_eq!(cut(300), [0x99]);
}
