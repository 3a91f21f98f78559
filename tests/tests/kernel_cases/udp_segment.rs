//! K40 to K56: the segmentation cases of `udpgso.c` and `uso.py`.
//!
//! The socket errors (EMSGSIZE beyond the path MTU, EINVAL beyond 128 datagrams) have no counterpart in the engine. It
//! returns [`NoSegments::Whole`] for a send of one plain datagram, and segments everything else.

use grosso::segment::{NoSegments, Outgoing};
use grosso_rig::superframe::{Superframe, lengths_behind};
use grosso_testkit::{
    Packet,
    oracle::{Link, is_right},
    stream,
};

/// Size of the Ethernet, IPv4 and UDP headers, in bytes.
const HEADERS_V4: usize = 14 + 20 + 8;
/// Size of the Ethernet, IPv6 and UDP headers, in bytes.
const HEADERS_V6: usize = 14 + 40 + 8;
/// Maximum payload of an IPv4 datagram for an Ethernet MTU.
const MSS_V4: usize = 1472;
/// Maximum payload of an IPv6 datagram for an Ethernet MTU.
const MSS_V6: usize = 1452;

/// Returns the superframe of a UDP send of `len` bytes with segment size `size`.
fn sent_v4(len: usize, size: usize) -> Superframe {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(7)).udp(|udp| udp);
    Superframe::new(&packet.payload(&stream(0, len)), size as u16)
}

/// Returns the superframe of a UDP send over IPv6 of `len` bytes with segment size `size`.
fn sent_v6(len: usize, size: usize) -> Superframe {
    let packet = Packet::new().ethernet(|e| e).ipv6(|ip| ip).udp(|udp| udp);
    Superframe::new(&packet.payload(&stream(0, len)), size as u16)
}

/// Asserts the datagrams of a send over both families.
#[track_caller]
fn assert_both(len: usize, size: usize, expected: &[usize]) {
    assert_eq!(lengths_behind(HEADERS_V4, &sent_v4(len, size).packets()), expected);
    assert_eq!(lengths_behind(HEADERS_V6, &sent_v6(len, size).packets()), expected);
}

/// Asserts that a send with these lengths and sizes is one plain datagram.
#[track_caller]
fn assert_whole(v4: (usize, usize), v6: (usize, usize)) {
    assert_eq!(sent_v4(v4.0, v4.1).refusal(), NoSegments::Whole);
    assert_eq!(sent_v6(v6.0, v6.1).refusal(), NoSegments::Whole);
}

/// Asserts that a frame is not segmented if its sender requested no segmentation.
#[track_caller]
fn assert_no_superframe(len: usize) {
    for mut frame in [sent_v4(len, 1), sent_v6(len, 1)] {
        frame.meta.gso = None;
        assert_eq!(frame.refusal(), NoSegments::NotSuperframe);
    }
}

#[test]
fn k40_one_byte() {
    assert_no_superframe(1);
}

#[test]
fn k41_one_mss_without_size() {
    assert_no_superframe(MSS_V4);
    assert_no_superframe(MSS_V6);
}

#[test]
fn k42_beyond_the_mss_without_size_is_not_cut() {
    assert_no_superframe(MSS_V4 + 1);
    assert_no_superframe(MSS_V6 + 1);
}

#[test]
fn k43_one_mss() {
    assert_whole((MSS_V4, MSS_V4), (MSS_V6, MSS_V6));
}

#[test]
fn k44_one_mss_with_a_greater_size() {
    assert_whole((MSS_V4, MSS_V4 + 1), (MSS_V6, MSS_V6 + 1));
}

#[test]
fn k45_beyond_the_mss_with_a_greater_size_is_not_cut() {
    assert_whole((MSS_V4 + 1, MSS_V4 + 2), (MSS_V6 + 1, MSS_V6 + 2));
}

#[test]
fn k46_one_mss_and_one_byte() {
    assert_eq!(lengths_behind(HEADERS_V4, &sent_v4(1473, MSS_V4).packets()), [1472, 1]);
    assert_eq!(lengths_behind(HEADERS_V6, &sent_v6(1453, MSS_V6).packets()), [1452, 1]);
}

// Rules: S23
#[test]
fn k47_two_mss() {
    assert_eq!(lengths_behind(HEADERS_V4, &sent_v4(2944, MSS_V4).packets()), [1472, 1472]);
    assert_eq!(lengths_behind(HEADERS_V6, &sent_v6(2904, MSS_V6).packets()), [1452, 1452]);
}

#[test]
fn k48_two_mss_and_one_byte() {
    assert_eq!(lengths_behind(HEADERS_V4, &sent_v4(2945, MSS_V4).packets()), [1472, 1472, 1]);
    assert_eq!(lengths_behind(HEADERS_V6, &sent_v6(2905, MSS_V6).packets()), [1452, 1452, 1]);
}

#[test]
fn k49_as_many_full_segments_as_fit() {
    assert_eq!(lengths_behind(HEADERS_V4, &sent_v4(64768, MSS_V4).packets()), [1472; 44]);
    assert_eq!(lengths_behind(HEADERS_V6, &sent_v6(65340, MSS_V6).packets()), [1452; 45]);
}

#[test]
fn k50_the_greatest_datagram() {
    let v4 = [vec![1472; 44], vec![739]].concat();
    assert_eq!(lengths_behind(HEADERS_V4, &sent_v4(65507, MSS_V4).packets()), v4);
    let v6 = [vec![1452; 45], vec![187]].concat();
    assert_eq!(lengths_behind(HEADERS_V6, &sent_v6(65527, MSS_V6).packets()), v6);
}

#[test]
fn k51_beyond_the_greatest_datagram_every_packet_is_still_right() {
    let v4 = [vec![1472; 44], vec![740]].concat();
    let v6 = [vec![1452; 45], vec![188]].concat();
    assert_eq!(lengths_behind(HEADERS_V4, &sent_v4(65508, MSS_V4).packets()), v4);
    assert_eq!(lengths_behind(HEADERS_V6, &sent_v6(65528, MSS_V6).packets()), v6);
}

#[test]
fn k52_tiny_sizes() {
    assert_whole((1, 1), (1, 1));
    assert_both(2, 1, &[1, 1]);
    assert_both(5, 2, &[2, 2, 1]);
}

#[test]
fn k53_128_datagrams_of_one_byte() {
    assert_both(128, 1, &[1; 128]);
}

#[test]
fn k54_the_engine_has_no_limit_of_128_datagrams() {
    assert_both(129, 1, &[1; 129]);
}

#[test]
fn k55_hop_by_hop_header() {
    let packet = Packet::new().ethernet(|e| e).ipv6(|ip| ip).hop_by_hop(|h| h).udp(|udp| udp);
    let frame = Superframe::new(&packet.payload(&[1, 2]), 1);
    assert_eq!(lengths_behind(HEADERS_V6 + 8, &frame.packets()), [1, 1]);
}

/// Returns the lengths that the UDP header of each packet declares.
fn declared(header_len: usize, packets: &[(Vec<u8>, grosso::Meta)]) -> Vec<(usize, usize)> {
    let length = |packet: &[u8]| {
        usize::from(u16::from_be_bytes([packet[header_len - 4], packet[header_len - 3]]))
    };
    packets.iter().map(|(packet, _)| (packet.len() - header_len, length(packet))).collect()
}

#[test]
fn k56_uso_software() {
    assert_both(14500, 1400, &[&[1400; 10][..], &[500]].concat());
    assert_both(7000, 1400, &[1400; 5]);
}

#[test]
fn k56_uso_with_checksums_left_to_the_device() {
    for (len, count) in [(14500, 11), (7000, 5)] {
        let packets = sent_v4(len, 1400).cut(Outgoing::PARTIAL_CHECKSUMS).unwrap();
        assert_eq!(packets.len(), count);
        let total: usize = packets.iter().map(|(packet, _)| packet.len() - HEADERS_V4).sum();
        assert_eq!(total, len);
    }
}

/// Tests that the length in the repeated header is that of one full segment, even if the payload divides evenly (B5).
// Rules: S47, B5
#[test]
fn k56_uso_partial() {
    for (header_len, send) in
        [(HEADERS_V4, sent_v4 as fn(usize, usize) -> Superframe), (HEADERS_V6, sent_v6)]
    {
        let packets = send(14500, 1400).cut(Outgoing::GSO_PARTIAL).unwrap();
        assert_eq!(declared(header_len, &packets), [(14000, 1408), (500, 508)]);
        let packets = send(7000, 1400).cut(Outgoing::GSO_PARTIAL).unwrap();
        assert_eq!(declared(header_len, &packets), [(7000, 1408)]);
    }
}

#[test]
fn k56_every_datagram_has_a_right_checksum() {
    for frame in [sent_v4(14500, 1400), sent_v6(7000, 1400)] {
        assert!(frame.packets().iter().all(|packet| is_right(packet, Link::Ethernet)));
    }
}
