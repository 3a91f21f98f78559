//! Tests rules S3 to S23: which superframes can be segmented, and which TCP and UDP fields vary by packet.

use grosso::{
    checksum::Checksum,
    meta::{Cwr, Gso, GsoSize, IpLevels},
    segment::{IP_LEVELS_MAX, NoSegments, Outgoing},
};
use grosso_rig::superframe::{Superframe, lengths_behind};
use grosso_testkit::{
    Packet,
    headers::{Ipv4, Tcp},
    oracle::{Lengths, Link, is_right, parse},
    stream,
};

/// Size of the Ethernet, IPv4 and TCP headers, in bytes.
const HEADERS: usize = 14 + 20 + 20;

/// Returns a TCP superframe over IPv4 with changes, and `len` bytes of payload in segments of 100.
fn tcp4(len: usize, ip: impl Fn(Ipv4) -> Ipv4, tcp: impl Fn(Tcp) -> Tcp) -> Superframe {
    let packet = Packet::new().ethernet(|e| e).ipv4(ip).tcp(tcp).payload_len(len);
    Superframe::new(&packet, 100)
}

/// Returns the values of a field in the innermost header with this name, packet by packet.
fn fields(packets: &[Vec<u8>], layer: &str, field: &str) -> Vec<u64> {
    let value = |packet: &Vec<u8>| {
        let parsed = parse(packet, Link::Ethernet, Lengths::Declared);
        let layer = parsed.layers.iter().rfind(|found| found.name == layer).expect("the layer");
        layer.number(field)
    };
    packets.iter().map(value).collect()
}

#[test]
fn s03_payload_that_fits_one_packet_is_not_cut() {
    for len in [0, 1, 99, 100] {
        assert_eq!(tcp4(len, |ip| ip, |tcp| tcp).refusal(), NoSegments::Whole);
        let udp = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|udp| udp).payload_len(len);
        assert_eq!(Superframe::new(&udp, 100).refusal(), NoSegments::Whole);
    }
    assert_eq!(tcp4(101, |ip| ip, |tcp| tcp).packets().len(), 2);
}

#[test]
fn s03_partial_checksum_elsewhere_is_refused() {
    for start in [0, 14, 33, 35, 54, u16::MAX] {
        let mut frame = tcp4(200, |ip| ip, |tcp| tcp);
        frame.meta.checksum = Checksum::Partial { start, offset: 16 };
        assert_eq!(frame.refusal(), NoSegments::ChecksumStart, "{start}");
    }
}

// Rules: S3a
#[test]
fn s03_headers_that_do_not_fit_are_refused() {
    let frame = tcp4(200, |ip| ip, |tcp| tcp);
    for len in 0..HEADERS {
        let cut = Superframe { bytes: frame.bytes[..len].to_vec(), meta: frame.meta };
        assert_eq!(cut.refusal(), NoSegments::HeadersSplit, "{len}");
    }
}

#[test]
fn s03_headers_longer_than_any_train_keeps_are_refused() {
    let packet = Packet::new().ethernet(|e| e).ipv6(|ip| ip);
    let packet = (0..3).fold(packet, |packet, _| packet.destination_options(|d| d.data(&[0; 200])));
    let frame = Superframe::new(&packet.tcp(|tcp| tcp).payload_len(200), 100);
    assert_eq!(frame.refusal(), NoSegments::HeaderTooLong);
}

#[test]
fn s03_unknown_transport_is_refused() {
    let meta = tcp4(200, |ip| ip, |tcp| tcp).meta;
    for packet in [
        Packet::new().ethernet(|e| e).ipv4(|ip| ip).sctp(|s| s).payload_len(200),
        Packet::new().ethernet(|e| e).ipv4(|ip| ip).icmp(|i| i).payload_len(200),
        Packet::new().ethernet(|e| e).ipv4(|ip| ip).esp(|e| e).payload_len(200),
        Packet::new().ethernet(|e| e).payload_len(200),
    ] {
        assert_eq!(Superframe { bytes: packet.build(), meta }.refusal(), NoSegments::Headers);
    }
}

#[test]
fn s03_contradicting_tcp_header_is_refused() {
    for words in 0..5 {
        let frame = tcp4(200, |ip| ip, |tcp| tcp.data_offset_raw(words));
        assert_eq!(frame.refusal(), NoSegments::Headers);
    }
}

#[test]
fn s03_number_of_segments_of_an_untrusted_superframe_is_counted_again() {
    for told in [0, 1, 7, u16::MAX] {
        let frame = tcp4(250, |ip| ip, |tcp| tcp).gso(|gso| {
            gso.segments = told;
            gso.untrusted = true;
        });
        assert_eq!(lengths_behind(HEADERS, &frame.packets()), [100, 100, 50]);
    }
}

#[test]
fn s03_fragments_are_refused() {
    for change in [|ip: Ipv4| ip.more_fragments(true), |ip: Ipv4| ip.fragment_offset(3)] {
        assert_eq!(tcp4(200, change, |tcp| tcp).refusal(), NoSegments::Fragments);
    }
    let packet = Packet::new().ethernet(|e| e).ipv6(|ip| ip).fragment(|f| f);
    let frame = Superframe::new(&packet.tcp(|tcp| tcp).payload_len(200), 100);
    assert_eq!(frame.refusal(), NoSegments::Fragments);
}

// Rules: B10
#[test]
fn s04_sixth_ip_header_is_refused() {
    let nested = |levels: usize| {
        let packet =
            (0..levels).fold(Packet::new().ethernet(|e| e), |packet, _| packet.ipv4(|ip| ip));
        Superframe::new(&packet.tcp(|tcp| tcp).payload_len(250), 100)
    };
    assert_eq!(IP_LEVELS_MAX, 5);
    assert_eq!(lengths_behind(14 + 5 * 20 + 20, &nested(5).packets()), [100, 100, 50]);
    assert_eq!(nested(6).refusal(), NoSegments::TooManyIpHeaders);
}

#[test]
fn s05_extension_headers_are_on_every_packet() {
    let packet = Packet::new().ethernet(|e| e).ipv6(|ip| ip).hop_by_hop(|h| h).routing(|r| r);
    let packet = packet.destination_options(|d| d).tcp(|tcp| tcp).payload_len(250);
    let frame = Superframe::new(&packet, 100);
    let packets = frame.packets();
    assert_eq!(lengths_behind(14 + 40 + 24 + 20, &packets), [100, 100, 50]);
    assert!(packets.iter().all(|packet| packet[54..78] == frame.bytes[54..78]));
}

/// Returns a superframe as Linux up to 6.19 built it: the length does not fit into the IPv6 header, so a hop-by-hop
/// header contains it.
fn jumbo(len: usize) -> Superframe {
    let length = (len + 20 + 8) as u32;
    let option = [&[0xc2, 4][..], &length.to_be_bytes()].concat();
    let packet = Packet::new().ethernet(|e| e).ipv6(|ip| ip.payload_len_raw(0));
    let packet = packet.hop_by_hop(|h| h.data(&option)).tcp(|tcp| tcp).payload_len(len);
    Superframe::new(&packet, 1440)
}

// Rules: G63
#[test]
fn s05_jumbo_header_is_taken_out() {
    let cut = jumbo(100_000).cut(Outgoing::default()).unwrap();
    let packets: Vec<_> = cut.into_iter().map(|(bytes, _)| bytes).collect();
    let plain = Packet::new().ethernet(|e| e).ipv6(|ip| ip).tcp(|tcp| tcp).payload_len(100_000);
    assert_eq!(packets, Superframe::new(&plain, 1440).packets());
    assert!(packets.iter().all(|packet| is_right(packet, Link::Ethernet)));
}

#[test]
fn s05_superframe_without_a_length_is_cut() {
    for packet in [
        Packet::new().ethernet(|e| e).ipv6(|ip| ip).tcp(|tcp| tcp).payload_len(100_000),
        Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|tcp| tcp).payload_len(100_000),
    ] {
        assert_eq!(Superframe::new(&packet, 1440).packets().len(), 70);
    }
}

#[test]
fn s06_link_headers_are_on_every_packet() {
    let packet =
        Packet::new().ethernet(|e| e.source([1; 6])).vlan(|v| v.service().id(5).priority(3));
    let packet = packet.vlan(|v| v.id(7)).ipv4(|ip| ip).tcp(|tcp| tcp).payload_len(250);
    let frame = Superframe::new(&packet, 100);
    assert!(frame.packets().iter().all(|packet| packet[..22] == frame.bytes[..22]));
}

#[test]
fn s07_payload_is_cut_every_size_bytes() {
    for len in [101, 150, 200, 201, 299, 300, 65_000] {
        let expected = [vec![100; (len - 1) / 100], vec![(len - 1) % 100 + 1]].concat();
        let packets = tcp4(len, |ip| ip, |tcp| tcp).packets();
        assert_eq!(lengths_behind(HEADERS, &packets), expected);
        let payload: Vec<u8> =
            packets.iter().flat_map(|packet| packet[HEADERS..].to_vec()).collect();
        assert_eq!(payload, stream(100, len));
    }
}

#[test]
fn s10_sequence_number_advances_and_wraps() {
    let packets = tcp4(350, |ip| ip, |tcp| tcp.sequence(0xffff_ff9c)).packets();
    assert_eq!(fields(&packets, "tcp", "sequence"), [0xffff_ff9c, 0, 100, 200]);
}

/// Returns the flags of three packets segmented from a superframe with these flags.
fn flags(flags: u16, cwr: Cwr) -> Vec<u64> {
    let frame = tcp4(300, |ip| ip, |tcp| tcp.flags(flags)).gso(|gso| gso.cwr = cwr);
    fields(&frame.packets(), "tcp", "offset_flags").iter().map(|word| word & 0xfff).collect()
}

#[test]
fn s11_fin_and_psh_are_on_the_last_packet() {
    for flag in [Tcp::FIN, Tcp::PSH, Tcp::FIN | Tcp::PSH] {
        let expected = [Tcp::ACK, Tcp::ACK, Tcp::ACK | flag].map(u64::from);
        assert_eq!(flags(Tcp::ACK | flag, Cwr::First), expected);
    }
}

#[test]
fn s11_cwr_is_on_the_first_packet_or_on_all() {
    assert_eq!(flags(Tcp::CWR, Cwr::First), [0x80, 0, 0]);
    assert_eq!(flags(Tcp::CWR, Cwr::Every), [0x80, 0x80, 0x80]);
}

#[test]
fn s11_every_other_flag_is_on_all_packets() {
    for flag in [0x800, 0x400, 0x200, Tcp::AE, Tcp::ECE, Tcp::URG, Tcp::ACK, Tcp::RST, Tcp::SYN] {
        assert_eq!(flags(flag, Cwr::First), [u64::from(flag); 3]);
    }
}

#[test]
fn s11_window_acknowledgment_options_and_urgent_pointer_are_on_all_packets() {
    let change = |tcp: Tcp| tcp.window(77).ack(88).urgent_pointer(99).timestamps(1, 2);
    let packets = tcp4(250, |ip| ip, change).packets();
    for packet in &packets {
        assert_eq!(packet[42..46], 88_u32.to_be_bytes());
        assert_eq!(packet[48..50], 77_u16.to_be_bytes());
        assert_eq!(packet[52..54], 99_u16.to_be_bytes());
        assert_eq!(packet[54..66], [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
    }
}

#[test]
fn s12_identification_steps_and_wraps() {
    let packets = tcp4(350, |ip| ip.id(65534), |tcp| tcp).packets();
    assert_eq!(fields(&packets, "ipv4", "id"), [65534, 65535, 0, 1]);
}

#[test]
fn s12_fixed_identification_stays_for_any_df() {
    for df in [true, false] {
        let frame = tcp4(250, |ip| ip.id(7).df(df), |tcp| tcp);
        let packets = frame.gso(|gso| gso.fixed_ids = IpLevels::from_bits(1)).packets();
        assert_eq!(fields(&packets, "ipv4", "id"), [7, 7, 7]);
    }
}

#[test]
fn s12_ttl_tos_and_fragment_word_are_on_all_packets() {
    let packets = tcp4(250, |ip| ip.ttl(9).tos(0xb9).df(true), |tcp| tcp).packets();
    assert_eq!(fields(&packets, "ipv4", "ttl"), [9; 3]);
    assert_eq!(fields(&packets, "ipv4", "tos"), [0xb9; 3]);
    assert_eq!(fields(&packets, "ipv4", "fragment"), [0x4000; 3]);
    assert_eq!(fields(&packets, "ipv4", "total_len"), [140, 140, 90]);
}

#[test]
fn s13_ipv6_payload_length_is_that_of_each_packet() {
    let packet = Packet::new().ethernet(|e| e).ipv6(|ip| ip.flow_label(5).traffic_class(9));
    let frame = Superframe::new(&packet.tcp(|tcp| tcp).payload_len(250), 100);
    let packets = frame.packets();
    assert_eq!(fields(&packets, "ipv6", "payload_len"), [120, 120, 70]);
    assert!(packets.iter().all(|packet| packet[14..18] == frame.bytes[14..18]));
    assert!(packets.iter().all(|packet| packet[20..54] == frame.bytes[20..54]));
}

#[test]
fn s14_checksums_are_right_for_every_state_of_the_superframe() {
    let seeded = tcp4(250, |ip| ip, |tcp| tcp);
    for checksum in [seeded.meta.checksum, Checksum::None, Checksum::Unnecessary { levels: 0 }] {
        let mut frame = seeded.clone();
        frame.meta.checksum = checksum;
        frame.bytes[50..52].copy_from_slice(&[0xde, 0xad]);
        assert!(frame.packets().iter().all(|packet| is_right(packet, Link::Ethernet)));
    }
}

/// Tests a payload of two 100-byte segments. The TCP checksum of the first packet is computed as zero.
#[test]
fn s14_computed_zero_stays_zero_for_tcp() {
    let frame = |payload: &[u8]| {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|tcp| tcp).payload(payload);
        Superframe::new(&packet, 100)
    };
    let mut payload = [vec![0, 0], stream(0, 198)].concat();
    let checksum = frame(&payload).packets()[0][50..52].to_vec();
    payload[..2].copy_from_slice(&checksum);
    let packets = frame(&payload).packets();
    assert_eq!(packets[0][50..52], [0, 0]);
    assert!(is_right(&packets[0], Link::Ethernet));
}

/// Returns a UDP superframe with `len` bytes of payload in datagrams of 100.
fn udp4(len: usize) -> Superframe {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(7)).udp(|udp| udp);
    Superframe::new(&packet.payload(&stream(0, len)), 100)
}

#[test]
fn s20_every_datagram_has_its_own_header() {
    let packets = udp4(250).packets();
    assert_eq!(fields(&packets, "udp", "len"), [108, 108, 58]);
    assert_eq!(fields(&packets, "ipv4", "id"), [7, 8, 9]);
    assert_eq!(fields(&packets, "ipv4", "total_len"), [128, 128, 78]);
    assert!(packets.iter().all(|packet| is_right(packet, Link::Ethernet)));
}

/// Tests that segmentation does not read the field of a partial checksum, because a guest may leave it zero.
#[test]
fn s21_partial_checksum_makes_every_datagram_have_one() {
    let mut frame = udp4(250);
    frame.bytes[40..42].fill(0);
    let packets = frame.cut(Outgoing::default()).unwrap();
    for (packet, _) in packets {
        assert_ne!(packet[40..42], [0, 0]);
        assert!(is_right(&packet, Link::Ethernet));
    }
}

#[test]
fn s23_last_datagram_may_be_full() {
    let packets = udp4(300).packets();
    assert_eq!(fields(&packets, "udp", "len"), [108, 108, 108]);
    assert!(packets.iter().all(|packet| is_right(packet, Link::Ethernet)));
}

// Rules: B19
#[test]
fn s02_segment_size_of_65535_is_a_size_like_any_other() {
    let cut = |bytes| {
        let size = Gso::every(bytes).unwrap();
        assert!(matches!(size.size, GsoSize::Every(_)));
        tcp4(150_000, |ip| ip, |tcp| tcp).gso(|gso| *gso = size).cut(Outgoing::default())
    };
    let most = 65535 - 20 - 20;
    let packets = cut(most).unwrap();
    let lengths: Vec<_> = packets.iter().map(|(packet, _)| packet.len() - HEADERS).collect();
    assert_eq!(lengths, [65495, 65495, 19010]);
    assert!(packets.iter().all(|(packet, _)| is_right(packet, Link::Ethernet)));
    for longer in [most + 1, 65535] {
        assert_eq!(
            cut(longer).err(),
            Some(NoSegments::TooLong),
            "no IP header can express the length"
        );
    }
    assert_eq!(Gso::every(0), None);
}
