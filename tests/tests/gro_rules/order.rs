//! Tests rules G75 to G77: the order of deliveries, and superframes that arrive between packets.

use core::num::NonZeroU16;

use grosso::{
    Frame, Meta, Profile, Verdict,
    coalesce::reason::{Close, NoMerge, Pass},
    meta::{Fragmented, IpLevels},
};
use grosso_rig::{
    engine::{Engine, Out, coalesce, segment},
    frames::{Path, Segment, at, payload_lengths, plain},
    superframe::Superframe,
};
use grosso_testkit::{Packet, headers::Tcp};

/// A change that makes a packet ineligible, with its name.
type Ineligible = (&'static str, fn(Segment) -> Segment);

/// TCP packets that cannot be in a train, or never merge with a held packet.
const TCP: &[Ineligible] = &[
    ("wrong checksum", |s| s.tcp(|tcp| tcp.checksum_xor(1))),
    ("data offset below five", |s| s.tcp(|tcp| tcp.data_offset_raw(4))),
    ("data offset beyond the frame", |s| s.frame(|packet| packet.truncate(60))),
    ("frame cut inside TCP", |s| s.frame(|packet| packet.truncate(58))),
    ("syn", |s| s.tcp(Tcp::syn)),
    ("rst", |s| s.tcp(Tcp::rst)),
    ("urg", |s| s.tcp(Tcp::urg)),
    ("cwr", |s| s.tcp(Tcp::cwr)),
    ("window", |s| s.tcp(|tcp| tcp.window(1))),
    ("ttl", |s| s.ttl(99)),
    ("tos", |s| s.tos(3)),
    ("ethernet address", |s| s.ethernet(|e| e.source([2; 6]))),
    ("padding", |s| s.frame(|packet| packet.trailer(&[0; 4]))),
];

/// IPv4 packets that cannot be in a train, or never merge with a held packet. (If the header length is too small, the
/// addresses are not read.)
const IPV4: &[Ineligible] = &[
    ("header checksum", |s| s.ipv4(|ip| ip.checksum_xor(1))),
    ("options", |s| s.ipv4(|ip| ip.options(&[1, 1, 1, 1]))),
    ("first fragment", |s| s.ipv4(|ip| ip.more_fragments(true))),
    ("later fragment", |s| s.ipv4(|ip| ip.fragment_offset(4))),
    ("reserved bit", |s| s.ipv4(|ip| ip.reserved_bit(true))),
    ("length too great", |s| s.ipv4(|ip| ip.total_len_raw(1000))),
    ("length too small", |s| s.ipv4(|ip| ip.total_len_raw(50))),
    ("length zero", |s| s.ipv4(|ip| ip.total_len_raw(0))),
];

/// IPv6 packets that cannot be in a train, or never merge with a held packet.
const IPV6: &[Ineligible] = &[
    ("atomic fragment", |s| s.extensions(|packet| packet.fragment(|f| f))),
    ("first fragment", |s| s.extensions(|packet| packet.fragment(|f| f.more(true)))),
    ("later fragment", |s| s.extensions(|packet| packet.fragment(|f| f.offset(4)))),
    ("hop-by-hop header", |s| s.extensions(|packet| packet.hop_by_hop(|h| h))),
    ("authentication header", |s| s.ipv6(|ip| ip.next_header(51))),
    ("flow label", |s| s.ipv6(|ip| ip.flow_label(5))),
    ("length too great", |s| s.ipv6(|ip| ip.payload_len_raw(1000))),
    ("length too small", |s| s.ipv6(|ip| ip.payload_len_raw(30))),
    ("length zero", |s| s.ipv6(|ip| ip.payload_len_raw(0))),
];

/// UDP datagrams that cannot be in a train, or never merge with a held datagram.
const UDP: &[Ineligible] = &[
    ("wrong checksum", |s| s.udp(|udp| udp.checksum_xor(1))),
    ("no checksum", |s| s.udp(|udp| udp.checksum_zero())),
    ("length too great", |s| s.udp(|udp| udp.len_raw(1000))),
    ("length too small", |s| s.udp(|udp| udp.len_raw(20))),
    ("length below the header", |s| s.udp(|udp| udp.len_raw(7))),
    ("ttl", |s| s.ttl(99)),
];

/// Returns the wire packets that result from a poll, in order of delivery.
fn leaving(frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    coalesce(frames).iter().flat_map(segment).collect()
}

/// Asserts that five packets keep their order, whichever of them is changed.
fn assert_order(
    kinds: &[&[Ineligible]],
    train: impl Fn(&dyn Fn(usize, Segment) -> Segment) -> Vec<Vec<u8>>,
) {
    for (name, change) in kinds.concat() {
        for place in 0..5 {
            let frames = train(&at(place, change));
            assert_eq!(leaving(&frames), frames, "{name} at {place}");
        }
    }
}

/// Tests that no packet overtakes another, not even those that Linux delivers before flow matching.
// Rules: B7, B55, P16
#[test]
fn g75_nothing_of_a_tcp_connection_overtakes() {
    assert_order(&[TCP, IPV4], |edit| Path::Ipv4.train(&[100; 5], edit));
    assert_order(&[TCP, IPV6], |edit| Path::Ipv6.train(&[100; 5], edit));
    assert_order(&[TCP, IPV4], |edit| Path::Ipip.train(&[100; 5], edit));
    assert_order(&[TCP, IPV6], |edit| Path::Ip6ip6.train(&[100; 5], edit));
    assert_order(&[TCP, IPV4], |edit| Path::PppoeIpv4.train(&[100; 5], edit));
}

// Rules: B55
#[test]
fn g75_nothing_of_a_udp_flow_overtakes() {
    assert_order(&[UDP, IPV4], |edit| Path::Ipv4.datagrams(&[100; 5], edit));
    assert_order(&[UDP, IPV6], |edit| Path::Ipv6.datagrams(&[100; 5], edit));
}

#[test]
fn g75_empty_packets_do_not_overtake() {
    for path in Path::PLAIN {
        for place in 0..5 {
            let mut lengths = [100; 5];
            lengths[place] = 0;
            for frames in [path.train(&lengths, plain), path.datagrams(&lengths, plain)] {
                assert_eq!(leaving(&frames), frames);
            }
        }
    }
}

#[test]
fn g75_a_barrier_is_named() {
    let delivered = coalesce(&Path::Ipv4.train(&[100, 0], plain));
    assert_eq!(delivered[0].closed, Close::Barrier);
}

/// Tests that a fragment may belong to any connection between its addresses, and to no other connection.
#[test]
fn g75_fragments_are_barriers_between_their_addresses_only() {
    let connection = |host: u8| {
        Path::Ipv4.train(&[100, 100], move |_, s| s.ipv4(move |ip| ip.source([192, 168, 1, host])))
    };
    let (held, other) = (connection(200), connection(7));
    let fragment = Path::Ipv4.train(&[100], |_, s| s.ipv4(|ip| ip.fragment_offset(1)));
    let frames = [&held[0], &other[0], &fragment[0], &held[1], &other[1]].map(Clone::clone);
    assert_eq!(payload_lengths(&coalesce(&frames)).len(), 4);
}

/// Tests a device that assigns different hashes to the packets of one connection, or no hash to a packet that it could
/// not parse.
#[test]
fn g75_order_holds_when_the_device_hash_of_a_connection_changes() {
    let frames = Path::Ipv4.train(&[100; 3], at(2, |s| s.tcp(Tcp::psh)));
    let mut engine = Engine::new(Profile::linux_8x8());
    for (frame, hash) in frames.iter().zip([Some(0), Some(1), Some(1)]) {
        let meta = Meta { hash, ..Meta::default() };
        engine.push_frame(Frame { buffer: frame.clone(), meta }, 0);
    }
    engine.poll_end(0);
    let _ = engine.checked(&frames);
}

#[test]
fn g76_across_flows_a_finished_train_leaves_first() {
    let held = Path::Ipv4.train(&[100], plain);
    let pushed = Path::Ipv6.train(&[200], |_, s| s.tcp(Tcp::psh));
    let delivered = coalesce(&[&held[0], &pushed[0]].map(Clone::clone));
    assert_eq!(payload_lengths(&delivered), [200, 100]);
}

/// Returns a frame with `len` bytes of payload at offset `before`. If it has more than 100 bytes, it is a superframe
/// with 100-byte segments.
fn unit(before: u32, len: usize) -> Frame<Vec<u8>> {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id((before / 100) as u16));
    let packet = packet.tcp(|tcp| tcp.sequence(before)).payload_len(len);
    if len <= 100 {
        return Frame::new(packet.build());
    }
    let Superframe { bytes, meta } =
        Superframe::new(&packet, 100).gso(|gso| gso.segments = len.div_ceil(100) as u16);
    Frame { buffer: bytes, meta }
}

/// Returns verdicts and deliveries for superframes and packets of these payload lengths, in sequence.
fn units(lengths: &[usize]) -> (Vec<Verdict>, Vec<Out>) {
    let mut engine = Engine::new(Profile::linux());
    let mut before = 0;
    for &len in lengths {
        engine.push_frame(unit(before, len), 0);
        before += len as u32;
    }
    engine.poll_end(0);
    (engine.verdicts, engine.delivered)
}

#[test]
fn g77_superframes_join_superframes_of_equal_segments() {
    let (_, delivered) = units(&[200, 300, 200]);
    assert_eq!(payload_lengths(&delivered), [700]);
    assert_eq!((delivered[0].packets, delivered[0].meta.gso.unwrap().segments), (7, 7));
    let wire: Vec<_> = (0..7).map(|index| unit(index * 100, 100).buffer).collect();
    assert_eq!(segment(&delivered[0]), wire);
}

#[test]
fn g77_packets_join_superframes() {
    let (_, delivered) = units(&[100, 300, 100]);
    assert_eq!(payload_lengths(&delivered), [500]);
    let wire: Vec<_> = (0..5).map(|index| unit(index * 100, 100).buffer).collect();
    assert_eq!(segment(&delivered[0]), wire);
}

/// Returns the verdict on a superframe of two packets that follows another such superframe. For each, `units` has the
/// first identification, and whether identifications are fixed instead of incrementing.
fn with_identifications(units: [(u16, bool); 2]) -> Verdict {
    let mut engine = Engine::new(Profile::linux());
    for (index, (id, is_fixed)) in (0..).zip(units) {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(id));
        let packet = packet.tcp(|tcp| tcp.sequence(200 * index)).payload_len(200);
        let Superframe { bytes, meta } = Superframe::new(&packet, 100).gso(|gso| {
            gso.segments = 2;
            gso.fixed_ids = IpLevels::from_bits(u8::from(is_fixed));
        });
        engine.push_frame(Frame { buffer: bytes, meta }, 0);
    }
    engine.verdicts[1]
}

#[test]
fn g77_superframes_bring_their_identification_mode() {
    let refused = Verdict::Refused(NoMerge::Identification);
    assert_eq!(with_identifications([(7, true), (7, true)]), Verdict::Joined);
    assert_eq!(with_identifications([(7, false), (9, false)]), Verdict::Joined);
    assert_eq!(with_identifications([(7, false), (9, true)]), refused);
    assert_eq!(with_identifications([(7, true), (7, false)]), refused);
    assert_eq!(with_identifications([(7, true), (9, true)]), refused);
    assert_eq!(with_identifications([(7, false), (7, false)]), refused);
    assert_eq!(with_identifications([(7, false), (8, false)]), refused);
}

#[test]
fn g77_superframe_with_a_short_tail_closes_the_train() {
    let (verdicts, delivered) = units(&[200, 250, 100]);
    assert_eq!(verdicts[1], Verdict::Joined);
    assert_eq!(payload_lengths(&delivered), [450, 100]);
    assert_eq!(delivered[0].closed, Close::ShortSegment);
}

#[test]
fn g77_superframe_with_a_short_tail_starts_no_train() {
    let (verdicts, delivered) = units(&[250, 100]);
    assert_eq!(verdicts[0], Verdict::Passed(Pass::Superframe));
    assert_eq!(delivered[0].meta.gso.unwrap().segments, 3);
}

/// Tests that complete packets do not merge with superframes whose packets had partial checksums: segmentation could
/// not restore both.
#[test]
fn g77_complete_packets_do_not_join_superframes_of_partial_ones() {
    let mut superframe = unit(0, 200);
    superframe.meta.gso.iter_mut().for_each(|gso| gso.partial_members = true);
    let mut engine = Engine::new(Profile::linux());
    engine.push_frame(superframe, 0);
    let verdict = engine.push_frame(unit(200, 100), 0);
    assert_eq!(verdict, Verdict::Refused(NoMerge::ChecksumState));
}

// Rules: B14
#[test]
fn g77_geometry_that_is_not_that_of_the_bytes_passes() {
    for segments in [0, 1, 2, 4, u16::MAX] {
        let mut frame = unit(0, 300);
        frame.meta.gso.iter_mut().for_each(|gso| gso.segments = segments);
        let mut engine = Engine::new(Profile::linux());
        assert_eq!(engine.push_frame(frame, 0), Verdict::Passed(Pass::Superframe));
    }
}

/// Tests that a reassembled datagram never merges, because it will be fragmented again and needs its own
/// identification.
#[test]
fn s61_a_datagram_that_leaves_in_fragments_again_joins_no_train_and_overtakes_none() {
    for path in [Path::Ipv4, Path::Ipv6] {
        let frames = path.train(&[100; 4], plain);
        let mut engine = Engine::new(Profile::linux());
        let verdicts: Vec<_> = frames
            .iter()
            .enumerate()
            .map(|(at, frame)| {
                let mut frame = Frame::new(frame.clone());
                let fragmented = Fragmented { largest: NonZeroU16::MAX, identification: 7 };
                frame.meta.fragmented = (at == 2).then_some(fragmented);
                engine.push_frame(frame, 0)
            })
            .collect();
        let passed = Verdict::Passed(Pass::Fragment);
        assert_eq!(verdicts, [Verdict::Held, Verdict::Joined, passed, Verdict::Held]);
        engine.finish();
        let out = engine.checked(&frames);
        assert_eq!(out.iter().map(|out| out.packets).collect::<Vec<_>>(), [2, 1, 1]);
        let came: Vec<_> = out.iter().map(|out| out.meta.fragmented.is_some()).collect();
        assert_eq!(came, [false, true, false]);
    }
}
