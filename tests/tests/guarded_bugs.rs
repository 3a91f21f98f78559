//! Tests that Grosso does not have the bugs of other implementations: `linux-offloads` section 10. `docs/rules.md`
//! lists the bugs that are already covered by a rule's test.

use grosso::{
    Frame, Meta, Profile, Verdict,
    checksum::Checksum,
    coalesce::reason::Pass,
    meta::{GsoSize, VlanTag},
    segment::{BufferTooSmall, NoSegments, Outgoing, Segments},
};
use grosso_rig::{
    engine::{Engine, PORTS, coalesce, cut, segment},
    frames::{Path, assert_apart, payload_lengths, plain},
    superframe::{Superframe, lengths_behind},
};
use grosso_testkit::{
    Packet,
    headers::Tcp,
    oracle::{Link, is_right},
    stream,
};
use grosso_wire::{LinkType, Ports};

/// Size of the Ethernet, IPv4 and TCP headers, in bytes.
const HEADERS: usize = 14 + 20 + 20;

/// Returns a TCP superframe of `len` bytes in segments of `size`.
fn tcp4(len: usize, size: u16) -> Superframe {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|tcp| tcp).payload_len(len);
    Superframe::new(&packet, size)
}

#[test]
fn b02_one_buffer_is_longer_than_a_segment() {
    let frame = tcp4(3000, 700);
    for split in [HEADERS, HEADERS + 1, HEADERS + 699, HEADERS + 2000] {
        let (head, rest) = frame.bytes.split_at(split);
        let packets = cut(&[head, rest], &frame.meta, LinkType::Ethernet, Outgoing::default());
        let packets: Vec<_> = packets.unwrap().into_iter().map(|(bytes, _)| bytes).collect();
        assert_eq!(packets, frame.packets());
    }
}

#[test]
fn b06_vlan_and_tunnel_around_udp_merge() {
    let frame = |index: u32| {
        let packet = Packet::new().ethernet(|e| e).vlan(|v| v).ipv6(|ip| ip).udp(|u| u);
        let packet = packet.vxlan(|v| v).ethernet(|e| e).vlan(|v| v.id(9)).ipv4(|ip| ip);
        packet.udp(|u| u.source_port(7)).payload(&stream(100 * index, 100)).build()
    };
    let frames: Vec<_> = (0..3).map(frame).collect();
    assert_eq!(payload_lengths(&coalesce(&frames)), [300]);
}

// Rules: P45
#[test]
fn b10_a_hundred_stacked_headers_are_one_bounded_walk() {
    let stacked = |add: fn(Packet) -> Packet| {
        let packet = (0..100).fold(Packet::new().ethernet(|e| e), |packet, _| add(packet));
        Superframe::new(&packet.ipv4(|ip| ip).tcp(|tcp| tcp).payload_len(200), 100)
    };
    for frame in
        [stacked(|p| p.vlan(|v| v)), stacked(|p| p.ipv4(|ip| ip)), stacked(|p| p.mpls(|m| m))]
    {
        let mut engine = Engine::new(Profile::linux());
        assert_eq!(engine.push(&frame.bytes), Verdict::Passed(Pass::TooDeep));
        assert_eq!(frame.refusal(), NoSegments::Headers);
    }
}

/// Tests every protocol number in GUE and FOU: no panic, and only inner TCP or UDP is merged.
#[test]
fn b12_every_protocol_in_gue_and_fou() {
    for protocol in 0..=255 {
        let frame = |index: u32| {
            let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u);
            let packet = packet.gue(|gue| gue.protocol_raw(protocol)).ipv4(|ip| ip);
            packet.tcp(|tcp| tcp.sequence(100 * index)).payload_len(100).build()
        };
        let merged = coalesce(&[frame(0), frame(1)]).len() == 1;
        assert_eq!(merged, protocol == 4, "{protocol}");
        let ports = Ports::ASSIGNED.with_fou(5555, protocol);
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).fou(|u| u).ipv4(|ip| ip);
        let frame = packet.tcp(|tcp| tcp).payload_len(100).build();
        let mut engine = Engine::with(Profile::linux(), LinkType::Ethernet, ports, 1);
        // On the port of one IP version, packets of the other version are also recognized.
        let is_ip = [4, 41].contains(&protocol);
        assert_eq!(engine.push(&frame) == Verdict::Held, is_ip, "{protocol}");
    }
}

#[test]
fn b12_tunnel_on_a_port_without_configuration_is_plain_udp() {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).fou(|u| u).ipv4(|ip| ip);
    let frame = packet.tcp(|tcp| tcp).payload_len(100).build();
    let mut engine = Engine::with(Profile::linux(), LinkType::Ethernet, Ports::NONE, 1);
    assert_eq!(engine.push(&frame), Verdict::Held);
    // The next datagram of the outer flow merges, regardless of its contents.
    assert_eq!(engine.push(&frame), Verdict::Joined);
}

#[test]
fn b15_links_without_a_header_compare_none() {
    let frames: Vec<_> =
        Path::Ipv4.train(&[100; 3], plain).iter().map(|frame| frame[14..].to_vec()).collect();
    let mut engine = Engine::with(Profile::linux(), LinkType::Raw, PORTS, 1);
    frames.iter().for_each(|frame| {
        engine.push(frame);
    });
    engine.poll_end(0);
    let superframe = &engine.delivered[0];
    let packets = cut(&[&superframe.bytes], &superframe.meta, LinkType::Raw, Outgoing::default());
    assert_eq!(packets.unwrap().into_iter().map(|(bytes, _)| bytes).collect::<Vec<_>>(), frames);
}

#[test]
fn b16_headers_split_at_every_byte_are_refused() {
    let frame = tcp4(300, 100);
    for split in 0..HEADERS {
        let (head, rest) = frame.bytes.split_at(split);
        let result = cut(&[head, rest], &frame.meta, LinkType::Ethernet, Outgoing::default());
        assert_eq!(result, Err(NoSegments::HeadersSplit), "{split}");
    }
}

#[test]
fn b16_frames_cut_at_every_byte_are_no_panic() {
    let packet = Packet::new().ethernet(|e| e).vlan(|v| v).ipv6(|ip| ip).hop_by_hop(|h| h);
    let packet =
        packet.udp(|u| u).geneve(|g| g.option(1, 2, &[3; 8])).ethernet(|e| e).ipv4(|ip| ip);
    let frame = packet.tcp(|tcp| tcp.timestamps(1, 2)).payload_len(20).build();
    for len in 0..frame.len() {
        let mut engine = Engine::new(Profile::linux());
        assert!(matches!(engine.push(&frame[..len]), Verdict::Passed(_)), "{len}");
    }
}

#[test]
fn b18_every_segment_size_by_every_kind_of_length() {
    for size in [1, 2, 7, 8, 100, 1448, 9000, 32767, 32768, 65494, 65495] {
        let unit = usize::from(size);
        let lengths = [unit + 1, 2 * unit - 1, 2 * unit, 2 * unit + 1, 3 * unit];
        for len in lengths.into_iter().filter(|&len| len > unit) {
            let tail = vec![len % unit; usize::from(len % unit > 0)];
            let expected = [vec![unit; len / unit], tail].concat();
            assert_eq!(
                lengths_behind(HEADERS, &tcp4(len, size).packets()),
                expected,
                "{len}/{size}"
            );
        }
    }
}

/// Tests rewriting the source address and port of a superframe, with every checksum unchanged.
// Rules: K67
#[test]
fn b20_headers_rewritten_on_the_superframe_are_right_on_every_packet() {
    let frames = Path::Ipv4.train(&[100; 3], plain);
    let mut out = coalesce(&frames).remove(0);
    out.bytes[26..30].copy_from_slice(&[10, 9, 8, 7]);
    out.bytes[34..36].copy_from_slice(&4321_u16.to_be_bytes());
    let expected = Path::Ipv4.train(&[100; 3], |_, s| {
        s.ipv4(|ip| ip.source([10, 9, 8, 7])).tcp(|tcp| tcp.source_port(4321))
    });
    assert_eq!(segment(&out), expected);
}

/// Tests rewriting the outer address and port of a superframe in a tunnel, with every checksum unchanged (B30).
#[test]
fn b30_outer_headers_rewritten_on_the_superframe_are_right_on_every_packet() {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).vxlan(|v| v);
    let packet = packet.ethernet(|e| e).ipv4(|ip| ip).tcp(|tcp| tcp).payload_len(300);
    let mut frame = Superframe::new(&packet, 100);
    frame.bytes[26..30].copy_from_slice(&[10, 9, 8, 7]);
    frame.bytes[34..36].copy_from_slice(&4321_u16.to_be_bytes());
    assert!(frame.packets().iter().all(|packet| is_right(packet, Link::Ethernet)));
}

#[test]
fn b26_absent_outer_checksum_stays_absent_when_a_port_is_rewritten() {
    let packet =
        Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u.checksum_zero()).vxlan(|v| v);
    let packet = packet.ethernet(|e| e).ipv4(|ip| ip).tcp(|tcp| tcp).payload_len(300);
    let mut frame = Superframe::new(&packet, 100);
    frame.bytes[34..36].copy_from_slice(&4321_u16.to_be_bytes());
    assert!(frame.packets().iter().all(|packet| packet[40..42] == [0, 0]));
}

// Rules: S30
#[test]
fn b23_fragmentation_is_asked_for_by_name() {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).payload_len(3000);
    let frame = Superframe::new(&packet, 1000);
    let size = std::num::NonZeroU16::new(1000).unwrap();
    assert_eq!(
        frame.gso(|gso| gso.size = GsoSize::Fragments(size)).refusal(),
        NoSegments::Fragments
    );
}

#[test]
fn b28_wrong_checksum_is_never_called_verified() {
    let wrong = Path::Ipv4.train(&[100], |_, s| s.tcp(|tcp| tcp.checksum_xor(1)));
    let delivered = coalesce(&wrong);
    assert_eq!((&delivered[0].bytes, delivered[0].meta.checksum), (&wrong[0], Checksum::None));
}

// Rules: S3a
#[test]
fn b34_malformed_superframes_are_refused() {
    for words in 0..5 {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip);
        let packet = packet.tcp(|tcp| tcp.data_offset_raw(words)).payload_len(300);
        assert_eq!(Superframe::new(&packet, 100).refusal(), NoSegments::Headers);
    }
    assert_eq!(tcp4(0, 100).refusal(), NoSegments::Whole);
}

/// Tests a tiny segment size. Linux raises it, because its segment count has 16 bits.
#[test]
fn b35_tiny_segment_size_is_cut_as_asked() {
    let frame = tcp4(70_000, 1);
    let slices = [&frame.bytes[..]];
    let plan = Segments::new(&slices, &frame.meta, LinkType::Ethernet, &PORTS, Outgoing::default());
    assert_eq!(plan.unwrap().remaining(), 70_000);
    assert_eq!(tcp4(100, 7).packets().len(), 15);
}

#[test]
fn b60_more_fragments_ttl_and_version_are_compared() {
    let one = Path::Ipv4.train(&[100], plain);
    let more = Path::Ipv4.train(&[100, 100], |_, s| s.ipv4(|ip| ip.more_fragments(true)));
    assert_apart(&[&one[0], &more[1]].map(Clone::clone));
    assert_apart(&Path::Ipv4.train(&[100, 100], |index, s| s.ttl(8 + index as u8)));
    let version = Path::Ipv4.train(&[100, 100], |index, s| {
        s.ipv4(move |ip| if index == 1 { ip.version_ihl_raw(0x55) } else { ip })
    });
    assert_eq!(coalesce(&version).len(), 2);
}

#[test]
fn b63_buffer_that_is_too_small_is_an_error_and_loses_nothing() {
    let frame = tcp4(250, 100);
    let slices = [&frame.bytes[..]];
    let plan = Segments::new(&slices, &frame.meta, LinkType::Ethernet, &PORTS, Outgoing::default());
    let mut segments = plan.unwrap();
    let needed = HEADERS + 100;
    for len in 0..needed {
        assert_eq!(segments.write_next(&mut vec![0; len]), Err(BufferTooSmall { needed }));
    }
    for len in 0..HEADERS {
        let error = segments.scatter_next(&mut vec![0; len], |_| panic!("no payload"));
        assert_eq!(error, Err(BufferTooSmall { needed: HEADERS }));
    }
    let mut first = vec![0; needed];
    segments.write_next(&mut first).unwrap().unwrap();
    assert_eq!(first, frame.packets()[0]);
}

#[test]
fn b65_number_of_segments_comes_from_the_segment_size() {
    let out = coalesce(&Path::Ipv4.train(&[500, 500, 500, 1], plain)).remove(0);
    assert_eq!((out.packets, out.meta.gso.unwrap().segments), (4, 4));
}

#[test]
fn b66_what_is_known_of_the_first_packet_stays_known() {
    let first = Meta {
        vlan: Some(VlanTag { protocol: 0x88a8, tci: 5 }),
        hash: Some(77),
        timestamp_ns: Some(88),
        ..Meta::default()
    };
    let mut engine = Engine::new(Profile::linux());
    for (frame, timestamp) in Path::Ipv4.train(&[100, 100], plain).into_iter().zip([88, 99]) {
        let meta = Meta { timestamp_ns: Some(timestamp), ..first };
        engine.push_frame(Frame { buffer: frame, meta }, 0);
    }
    engine.poll_end(0);
    let Meta { vlan, hash, timestamp_ns, .. } = engine.delivered[0].meta;
    assert_eq!((vlan, hash, timestamp_ns), (first.vlan, first.hash, first.timestamp_ns));
}

#[test]
fn b67_partial_checksum_is_never_called_verified() {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|tcp| tcp).payload_len(100);
    let (buffer, start, offset) = packet.build_partial();
    let checksum = Checksum::Partial { start: start as u16, offset: offset as u16 };
    let mut engine = Engine::new(Profile::linux());
    engine.push_frame(Frame { buffer, meta: Meta { checksum, ..Meta::default() } }, 0);
    engine.poll_end(0);
    assert_eq!(engine.delivered[0].meta.checksum, checksum);
}

#[test]
fn b69_lengths_below_their_headers_are_no_panic() {
    for len in 0..60 {
        for path in Path::ALL {
            let lying = path.train(&[40; 2], |_, s| {
                s.ipv4(move |ip| ip.total_len_raw(len))
                    .ipv6(move |ip| ip.payload_len_raw(len))
                    .pppoe(move |pppoe| pppoe.len_raw(len))
            });
            let cut: Vec<_> = coalesce(&lying).iter().flat_map(segment).collect();
            assert_eq!(cut, lying);
        }
    }
}

#[test]
fn b72_a_flow_that_opted_out_is_joined_with_nothing() {
    let frames = Path::Ipv4.train(&[100; 4], plain);
    let mut engine = Engine::new(Profile::linux());
    engine.push(&frames[0]);
    assert_eq!(engine.push_excluded(&frames[1]), Verdict::Passed(Pass::Excluded));
    engine.push(&frames[2]);
    engine.push(&frames[3]);
    engine.poll_end(0);
    assert_eq!(payload_lengths(&engine.checked(&frames)), [100, 100, 200]);
}

/// Tests a fake TCP connection whose sender puts a datagram into each segment and marks its end only with PSH.
#[test]
fn b72_push_marks_every_segment_apart() {
    assert_apart(&Path::Ipv4.train(&[100; 3], |_, s| s.tcp(Tcp::psh)));
}
