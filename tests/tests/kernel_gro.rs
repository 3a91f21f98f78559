//! Tests of the kernel oracles themselves, on cases whose results are known from the kernel's own tests.
//!
//! A failure here means that the oracle is broken or that a new kernel behaves differently, not that Grosso is wrong.

#![cfg(target_os = "linux")]

use grosso_rig::kernel::{
    Batching, Capability, Delivered, GroOptions, GroOracle, GsoOracle, TunnelOffsets, VirtioHeader,
    capabilities, release, skip,
};
use grosso_testkit::Packet;
use grosso_testkit::headers::{Gre, Tcp, Udp};
use grosso_testkit::random::Random;

/// Size of the Ethernet, IPv4 and TCP headers without options, in bytes.
const TCP_HEADERS: usize = 14 + 20 + 20;
/// Size of the Ethernet, IPv4 and UDP headers, in bytes.
const UDP_HEADERS: usize = 14 + 20 + 8;

#[test]
fn k01_data_same() {
    let Some(mut oracle) = gro(&GroOptions::default()) else { return };
    let delivered = oracle.coalesce(&train(&[100, 100])).unwrap();
    assert_eq!(payloads(&delivered, TCP_HEADERS), [200]);

    // Rule G51: the aggregate is the first packet with a new length and a partial checksum.
    let VirtioHeader { flags, gso_type, gso_size, checksum_start, checksum_offset, .. } =
        delivered[0].virtio;
    assert_eq!((flags, gso_type), (VirtioHeader::NEEDS_CHECKSUM, VirtioHeader::TCP_IPV4));
    assert_eq!((gso_size, checksum_start, checksum_offset), (100, 34, 16));
    let whole = segment(0, 200, |tcp| tcp);
    assert_eq!(delivered[0].bytes, whole.build_partial().0);
}

#[test]
fn k02_data_lrg_sml() {
    let Some(mut oracle) = gro(&GroOptions::default()) else { return };
    let delivered = oracle.coalesce(&train(&[100, 50])).unwrap();
    assert_eq!(payloads(&delivered, TCP_HEADERS), [150]);
}

#[test]
fn k04_data_sml_lrg() {
    let Some(mut oracle) = gro(&GroOptions::default()) else { return };
    let frames = train(&[50, 100]);
    let delivered = oracle.coalesce(&frames).unwrap();
    assert_eq!(bytes(&delivered), frames);
    // Rule G53: delivered unchanged, with its checksum verified.
    assert!(delivered.iter().all(|packet| packet.virtio.flags == VirtioHeader::DATA_VALID));
}

#[test]
fn k07_flags_psh() {
    let Some(mut oracle) = gro(&GroOptions::default()) else { return };
    let frames = frames(&[100; 5], |index, tcp| if index == 2 { tcp.psh() } else { tcp });
    let delivered = oracle.coalesce(&frames).unwrap();
    assert_eq!(payloads(&delivered, TCP_HEADERS), [300, 200]);
}

#[test]
fn k13_tcp_seq() {
    let Some(mut oracle) = gro(&GroOptions::default()) else { return };
    let frames = [segment(0, 100, |tcp| tcp), segment(1, 100, |tcp| tcp.sequence(201))];
    let frames = frames.map(|packet| packet.build());
    assert_eq!(bytes(&oracle.coalesce(&frames).unwrap()), frames);
}

#[test]
fn g60_forty_five_full_segments_make_the_greatest_packet() {
    let Some(mut oracle) = gro(&GroOptions::default()) else { return };
    let delivered = oracle.coalesce(&train(&[1448; 60])).unwrap();
    assert_eq!(payloads(&delivered, TCP_HEADERS), [45 * 1448, 15 * 1448]);
}

#[test]
fn g62_raised_limit_makes_a_packet_without_a_length() {
    if release() < (6, 3) {
        return println!("skipped: Linux {:?} has no limit of its own for IPv4", release());
    }
    let options = GroOptions { max_size: Some((150_000, 150_000)), ..GroOptions::default() };
    let Some(mut oracle) = gro(&options) else { return };
    let delivered = oracle.coalesce(&train(&[1448; 60])).unwrap();
    assert_eq!(payloads(&delivered, TCP_HEADERS), [60 * 1448]);
    assert_eq!(delivered[0].bytes[16..18], [0, 0]);
}

#[test]
fn u03_udp_is_delivered_singly_by_default() {
    let Some(mut oracle) = gro(&GroOptions::default()) else { return };
    let frames = datagrams(&[100, 100]);
    assert_eq!(bytes(&oracle.coalesce(&frames).unwrap()), frames);
}

#[test]
fn u15_udp_merges_where_it_is_to_be_forwarded() {
    let features = vec!["rx-udp-gro-forwarding"];
    let Some(mut oracle) = gro(&GroOptions { features, ..GroOptions::default() }) else { return };
    let delivered = oracle.coalesce(&datagrams(&[100, 100, 60])).unwrap();
    assert_eq!(payloads(&delivered, UDP_HEADERS), [260]);
    assert_eq!(delivered[0].virtio.gso_type, VirtioHeader::UDP_SEGMENTS);
    assert_eq!(delivered[0].virtio.gso_size, 100);

    oracle.set_feature("rx-udp-gro-forwarding", false).unwrap();
    assert_eq!(oracle.coalesce(&datagrams(&[100, 100, 60])).unwrap().len(), 3);
}

#[test]
fn u13_a_udp_train_ends_at_sixty_four() {
    let features = vec!["rx-udp-gro-forwarding"];
    let batching = Some(Batching::Timer);
    let options = GroOptions { features, batching, ..GroOptions::default() };
    let Some(mut oracle) = gro(&options) else { return };
    let delivered = oracle.coalesce(&datagrams(&[100; 65])).unwrap();
    assert_eq!(payloads(&delivered, UDP_HEADERS), [6400, 100]);
}

#[test]
fn u16_fraglist_keeps_the_followers_out_of_sight() {
    let features = vec!["rx-gro-list"];
    let Some(mut oracle) = gro(&GroOptions { features, ..GroOptions::default() }) else { return };
    let delivered = oracle.coalesce(&datagrams(&[100, 100])).unwrap();
    assert_eq!(payloads(&delivered, UDP_HEADERS), [200]);
    assert_eq!(delivered[0].virtio.flags, VirtioHeader::DATA_VALID);
}

#[test]
fn tagged_frames_keep_their_tags() {
    let Some(mut oracle) = gro(&GroOptions::default()) else { return };
    let tagged = |service: bool| {
        let outer = Packet::new().ethernet(|ethernet| ethernet);
        let outer = if service { outer.vlan(|tag| tag.service()) } else { outer };
        outer.vlan(|tag| tag).ipv4(|ip| ip).tcp(|tcp| tcp).payload_len(100).build()
    };
    let frames = [tagged(false), tagged(true)];
    assert_eq!(bytes(&oracle.coalesce(&frames).unwrap()), frames);
}

#[test]
fn both_ways_of_batching_agree() {
    let timer = GroOptions { batching: Some(Batching::Timer), ..GroOptions::default() };
    let (Some(mut poll), Some(mut timer)) = (gro(&GroOptions::default()), gro(&timer)) else {
        return;
    };
    for lengths in [&[100, 100, 50, 100][..], &[50, 100, 100], &[100; 20], &[]] {
        let frames = train(lengths);
        assert_eq!(poll.coalesce(&frames).unwrap(), timer.coalesce(&frames).unwrap());
    }
}

#[test]
fn the_same_vector_has_the_same_answer_twenty_times() {
    let Some(mut oracle) = gro(&GroOptions::default()) else { return };
    if oracle.batching() != Batching::Poll {
        return println!("skipped: with a timer an answer may differ from the next");
    }
    let mut random = Random::new(0x6f72_6163);
    for number in 0..50 {
        let vector = random_vector(&mut random);
        let first = oracle.coalesce_once(&vector).unwrap();
        for _ in 1..20 {
            assert_eq!(oracle.coalesce_once(&vector).unwrap(), first, "vector {number}");
        }
    }
}

#[test]
fn concurrent_oracles_are_isolated() {
    let ask = |length: usize| {
        let Some(mut oracle) = gro(&GroOptions::default()) else { return };
        for _ in 0..200 {
            let delivered = oracle.coalesce(&train(&[length; 30])).unwrap();
            assert_eq!(payloads(&delivered, TCP_HEADERS), [30 * length]);
        }
    };
    std::thread::scope(|scope| {
        for length in [100, 200, 300, 400] {
            scope.spawn(move || ask(length));
        }
    });
}

#[test]
fn a_refused_frame_leaves_nothing_behind() {
    let Some(mut oracle) = gro(&GroOptions::default()) else { return };
    let good = train(&[100, 100]);
    let refused = [good[0].clone(), vec![0; 13]];
    assert!(oracle.coalesce_once(&refused).is_err());
    assert_eq!(payloads(&oracle.coalesce_once(&good).unwrap(), TCP_HEADERS), [200]);
}

#[test]
fn a_vector_longer_than_a_poll_is_refused() {
    let Some(mut oracle) = gro(&GroOptions::default()) else { return };
    if oracle.batching() == Batching::Poll {
        assert_eq!(oracle.coalesce(&train(&[100; 63])).unwrap().len(), 1);
        assert!(oracle.coalesce(&train(&[100; 64])).is_err());
    }
}

#[test]
fn nothing_leaks_from_one_vector_into_the_next() {
    let Some(mut oracle) = gro(&GroOptions::default()) else { return };
    let train = train(&[100; 10]);
    for frame in &train {
        assert_eq!(bytes(&oracle.coalesce_once(std::slice::from_ref(frame)).unwrap()), [&**frame]);
    }
    assert_eq!(oracle.coalesce_once(&train).unwrap().len(), 1);
}

#[test]
fn the_kernel_looks_into_plain_ip_and_not_into_mpls() {
    let report = match capabilities() {
        Ok(report) => report,
        Err(why) => return skip(&why),
    };
    for Capability { headers, merges } in &report {
        println!("{headers}: {}", if *merges { "merges" } else { "passes" });
    }
    let merges = |wanted| report.iter().find(|found| found.headers == wanted).unwrap().merges;
    assert!(merges("ipv4") && merges("ipv6") && merges("ipv6 hop-by-hop"));
    assert!(!merges("mpls ipv4"));
}

#[test]
fn t21_gre_with_checksum_and_key_compares_the_checksum_for_the_key() {
    let Some(mut oracle) = gro(&GroOptions::default()) else { return };
    let mut ask = |lengths: [usize; 2], edit: fn(Gre) -> Gre| {
        let mut sequence = FIRST_SEQUENCE;
        let frames = lengths.map(|length| {
            let outer = Packet::new().ethernet(|ethernet| ethernet).ipv4(|ip| ip).gre(edit);
            let packet = outer.ipv4(|ip| ip).tcp(|tcp| tcp.sequence(sequence));
            sequence += length as u32;
            packet.payload_len(length).build()
        });
        oracle.coalesce(&frames).unwrap().len()
    };
    assert_eq!(ask([100, 50], |gre| gre.checksum()), 1);
    assert_eq!(ask([100, 50], |gre| gre.key(7)), 1);
    // Packets of equal length have equal GRE checksums, because here the sum over an IPv4 packet depends only on its
    // length.
    assert_eq!(ask([100, 100], |gre| gre.checksum().key(7)), 1);
    assert_eq!(ask([100, 50], |gre| gre.checksum().key(7)), 2);
}

#[test]
fn s10_three_tcp_segments_with_ascending_identifications() {
    let Some(mut oracle) = gso() else { return };
    let last = |index, tcp: Tcp| if index == 2 { tcp.psh() } else { tcp };
    let expected = frames(&[100, 100, 100], last);
    let (superframe, start, offset) = segment(0, 300, |tcp| tcp.psh()).build_superframe();
    let header = needs_checksum(VirtioHeader::TCP_IPV4, 100, start, offset);
    assert_eq!(oracle.segment(&header, &superframe).unwrap(), expected);
}

#[test]
fn s20_three_datagrams_with_ascending_identifications() {
    let Some(mut oracle) = gso() else { return };
    // The datagrams contain slices of the superframe's payload, not separate streams.
    let (superframe, start, offset) = datagram(0, 260).build_superframe();
    let expected: Vec<Vec<u8>> = superframe[UDP_HEADERS..]
        .chunks(100)
        .enumerate()
        .map(|(index, piece)| datagram(index, 0).payload(piece).build())
        .collect();
    let header = needs_checksum(VirtioHeader::UDP_SEGMENTS, 100, start, offset);
    assert_eq!(oracle.segment(&header, &superframe).unwrap(), expected);
}

#[test]
fn s40_tunnelled_segments_advance_both_identifications() {
    if release() < (6, 17) {
        return println!("skipped: Linux {:?} has no header for tunnels", release());
    }
    let Some(mut oracle) = gso() else { return };
    for checksum in [false, true] {
        let (superframe, start, offset) = tunnelled(0, 300, checksum).build_superframe();
        let gso_type = VirtioHeader::TUNNEL_IPV4 | VirtioHeader::TCP_IPV4;
        let mut header = needs_checksum(gso_type, 100, start, offset);
        header.flags |= if checksum { VirtioHeader::TUNNEL_CHECKSUM } else { 0 };
        header.tunnel = TunnelOffsets { outer_transport: 34, inner_network: 64 };
        let expected: Vec<Vec<u8>> =
            (0..3).map(|index| tunnelled(index, 100, checksum).build()).collect();
        assert_eq!(oracle.segment(&header, &superframe).unwrap(), expected);
    }
}

#[test]
fn a_plain_frame_crosses_unchanged_in_both_directions() {
    let Some(mut oracle) = gso() else { return };
    let there = Packet::new().ethernet(|ethernet| ethernet).ipv6(|ip| ip).udp(|udp| udp);
    let back = Packet::new()
        .ethernet(|ethernet| {
            ethernet.source([0xaa, 0, 0, 0, 0, 1]).destination([0xaa, 0, 0, 0, 0, 2])
        })
        .vlan(|tag| tag)
        .ipv4(|ip| ip.ttl(1));
    for frame in [there.build(), back.build(), there.build()] {
        assert_eq!(oracle.segment(&VirtioHeader::default(), &frame).unwrap(), [frame]);
    }
}

#[test]
fn v02_a_superframe_without_a_segment_size_is_refused() {
    let Some(mut oracle) = gso() else { return };
    let (superframe, start, offset) = segment(0, 300, |tcp| tcp).build_superframe();
    let header = needs_checksum(VirtioHeader::TCP_IPV4, 0, start, offset);
    let refused = oracle.segment(&header, &superframe).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
}

#[test]
fn more_segments_than_the_output_holds_are_never_lost_in_silence() {
    let Some(mut oracle) = gso() else { return };
    let (superframe, start, offset) = segment(0, 8000, |tcp| tcp).build_superframe();
    let header = needs_checksum(VirtioHeader::TCP_IPV4, 8, start, offset);
    match oracle.segment(&header, &superframe) {
        Ok(segments) => assert_eq!(segments.len(), 1000),
        Err(why) => skip(&why.to_string()),
    }
}

/// Starts an oracle; `None`, after printing the reason, if it cannot run.
fn gro(options: &GroOptions) -> Option<GroOracle> {
    GroOracle::with(options).map_err(|why| skip(&why)).ok()
}

/// Starts an oracle; `None`, after printing the reason, if it cannot run.
fn gso() -> Option<GsoOracle> {
    GsoOracle::new().map_err(|why| skip(&why)).ok()
}

/// Returns consecutive TCP segments of these payload lengths.
fn train(lengths: &[usize]) -> Vec<Vec<u8>> {
    frames(lengths, |_, tcp| tcp)
}

/// Returns consecutive TCP segments of these payload lengths. `edit` changes each TCP header, and gets the index of the
/// segment.
fn frames(lengths: &[usize], edit: impl Fn(usize, Tcp) -> Tcp) -> Vec<Vec<u8>> {
    let mut sequence = FIRST_SEQUENCE;
    let mut frames = Vec::new();
    for (index, &length) in lengths.iter().enumerate() {
        let packet = segment(index, length, |tcp| edit(index, tcp.sequence(sequence)));
        frames.push(packet.build());
        sequence = sequence.wrapping_add(length as u32);
    }
    frames
}

/// The first sequence number of a train.
const FIRST_SEQUENCE: u32 = 100;

/// Returns one TCP segment whose IPv4 identification is its index.
fn segment(index: usize, length: usize, edit: impl Fn(Tcp) -> Tcp) -> Packet {
    Packet::new()
        .ethernet(|ethernet| ethernet)
        .ipv4(|ip| ip.id(index as u16))
        .tcp(|tcp| edit(tcp.sequence(FIRST_SEQUENCE)))
        .payload_len(length)
}

/// Returns up to 60 TCP segments of nine flows, some of them with other flags or damaged.
fn random_vector(random: &mut Random) -> Vec<Vec<u8>> {
    let mut sequences = [FIRST_SEQUENCE; 9];
    (0..random.within(1, 60))
        .map(|index| {
            let flow = random.below(sequences.len());
            let length = *random.choose(&[0, 1, 50, 100, 100, 100, 100, 1448]);
            let kind = random.below(20);
            let packet = segment(index, length, |tcp| {
                let tcp = tcp.sequence(sequences[flow]).source_port(1500 + flow as u16);
                match kind {
                    0 => tcp.psh(),
                    1 => tcp.fin(),
                    2 => tcp.cwr(),
                    3 => tcp.checksum_xor(1),
                    _ => tcp,
                }
            });
            sequences[flow] += length as u32;
            packet.build()
        })
        .collect()
}

/// Returns TCP segment number `index` inside VXLAN.
fn tunnelled(index: u16, length: usize, checksum: bool) -> Packet {
    Packet::new()
        .ethernet(|ethernet| ethernet)
        .ipv4(|ip| ip.id(1000 + index))
        .udp(|udp| if checksum { udp } else { udp.checksum_zero() })
        .vxlan(|vxlan| vxlan)
        .ethernet(|ethernet| ethernet)
        .ipv4(|ip| ip.id(2000 + index))
        .tcp(|tcp| tcp.sequence(FIRST_SEQUENCE + 100 * u32::from(index)))
        .payload_len(length)
}

fn datagrams(lengths: &[usize]) -> Vec<Vec<u8>> {
    lengths.iter().enumerate().map(|(index, &length)| datagram(index, length).build()).collect()
}

/// Returns one UDP datagram whose IPv4 identification is its index.
fn datagram(index: usize, length: usize) -> Packet {
    Packet::new()
        .ethernet(|ethernet| ethernet)
        .ipv4(|ip| ip.id(index as u16))
        .udp(|udp: Udp| udp)
        .payload_len(length)
}

fn needs_checksum(gso_type: u8, gso_size: u16, start: usize, offset: usize) -> VirtioHeader {
    VirtioHeader {
        flags: VirtioHeader::NEEDS_CHECKSUM,
        gso_type,
        gso_size,
        checksum_start: start as u16,
        checksum_offset: offset as u16,
        ..VirtioHeader::default()
    }
}

fn bytes(delivered: &[Delivered]) -> Vec<&[u8]> {
    delivered.iter().map(|packet| &*packet.bytes).collect()
}

fn payloads(delivered: &[Delivered], headers: usize) -> Vec<usize> {
    delivered.iter().map(|packet| packet.bytes.len() - headers).collect()
}
