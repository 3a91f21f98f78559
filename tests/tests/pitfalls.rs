//! Tests for the pitfalls of other implementations: `receive-profiles` section 3.

use grosso::{
    Frame, Meta, Profile, Verdict,
    checksum::Checksum,
    coalesce::{BucketChoice, reason::Close},
};
use grosso_rig::{
    engine::{Engine, coalesce, coalesce_with, segment},
    frames::{Path, Segment, assert_apart, assert_payloads, at, payload_lengths, plain},
};
use grosso_testkit::{
    headers::Tcp,
    oracle::{Link, checksum, is_right, sum},
    random::Random,
};

/// Returns the first segments of `count` connections.
fn connections(count: u32) -> Vec<Vec<u8>> {
    let first = |index: u32| {
        let [_, high, middle, low] = index.to_be_bytes();
        let frames = Path::Ipv4
            .train(&[10], move |_, s| s.ipv4(move |ip| ip.source([10, high, middle, low])));
        frames.into_iter()
    };
    (0..count).flat_map(first).collect()
}

#[test]
fn p01_no_superframe_exceeds_its_limit_and_no_length_wraps() {
    let mut random = Random::new(1);
    for limit in [65536_u32, 9000, 1500] {
        let mut profile = Profile::linux();
        profile.limits.size_bytes = limit;
        for _ in 0..20 {
            let size = random.within(1, 9000);
            let frames = Path::Ipv4.train(&vec![size; 100_000 / size], plain);
            for out in coalesce_with(profile.clone(), &frames) {
                let len = out.bytes.len() - 14;
                assert!(!out.joined || len < limit as usize);
                assert_eq!(out.bytes[16..18], (len as u16).to_be_bytes());
            }
        }
    }
}

#[test]
fn p02_packets_of_a_sender_with_a_smaller_mtu_fill_the_superframe() {
    let delivered = coalesce(&Path::Ipv4.train(&[1460; 45], plain));
    assert_eq!(delivered[0].packets, 44);
}

#[test]
fn p03_no_padding_gets_into_a_superframe() {
    for len in 0..=6 {
        let frames = Path::Ipv4.train(&[100, len, 100, 100], |index, s| match index {
            1 => s.frame(move |packet| packet.trailer(&vec![0xee; 6 - len + 1])),
            _ => s,
        });
        assert_payloads(&frames, &[100, len, 200]);
    }
}

// Rules: B33
#[test]
fn p04_frames_of_every_length_are_no_panic() {
    for path in Path::ALL {
        for len in 0..=128 {
            let frames =
                path.train(&[100, 100], |_, s| s.frame(move |packet| packet.truncate(len)));
            assert_apart(&frames);
        }
    }
}

#[test]
fn p05_tags_are_no_part_of_a_carried_sum() {
    for tags in 0..3 {
        let frames = Path::Ipv4.train(&[100, 100], |_, s| {
            s.link(move |packet| (0..tags).fold(packet, |packet, _| packet.vlan(|v| v.id(0xabc))))
        });
        let mut engine = Engine::new(Profile::linux());
        for frame in &frames {
            let checksum = Checksum::Complete { sum: sum(&frame[14 + 4 * tags..]) };
            let meta = Meta { checksum, ..Meta::default() };
            engine.push_frame(Frame { buffer: frame.clone(), meta }, 0);
        }
        engine.poll_end(0);
        assert_eq!(engine.checked(&frames).len(), 1);
    }
}

#[test]
fn p06_a_rejected_packet_leaves_with_its_own_sum() {
    let ack = Path::Ipv4.train(&[0], plain).remove(0);
    let checksum = Checksum::Complete { sum: sum(&ack[14..]) };
    let mut engine = Engine::new(Profile::linux());
    engine.push_frame(Frame { buffer: ack, meta: Meta { checksum, ..Meta::default() } }, 0);
    assert_eq!(engine.delivered[0].meta.checksum, checksum);
}

#[test]
fn p07_odd_segments_sum_right() {
    for path in Path::PLAIN {
        for lengths in [&[101, 101, 100][..], &[99, 99, 99, 1], &[1, 1, 1]] {
            let frames = path.train(lengths, plain);
            let delivered = coalesce(&frames);
            assert_eq!(delivered.len(), 1);
            assert!(segment(&delivered[0]).iter().all(|packet| is_right(packet, Link::Ethernet)));
        }
    }
}

// Rules: P35
#[test]
fn p08_congestion_mark_on_any_packet_stays_visible() {
    for path in Path::PLAIN {
        for place in 0..4 {
            let ect = |index, s: Segment| s.tos(if index == place { 3 } else { 2 });
            let delivered = coalesce(&path.train(&[100; 4], ect));
            let marked: Vec<_> = delivered
                .iter()
                .filter(|out| {
                    let class = u16::from_be_bytes([out.bytes[14], out.bytes[15]]);
                    let class = if path == Path::Ipv4 { class } else { class >> 4 };
                    class & 3 == 3
                })
                .collect();
            assert_eq!(payload_lengths(&[marked[0].clone()]), [100]);
            assert_eq!(marked.len(), 1);
        }
    }
}

#[test]
fn p09_alternating_type_of_service_keeps_the_order() {
    for path in Path::PLAIN {
        assert_apart(&path.train(&[100; 6], |index, s| s.tos(index as u8 % 2)));
    }
}

#[test]
fn p10_pure_acknowledgment_does_not_overtake_data() {
    let frames = Path::Ipv4.train(&[100, 0, 100], at(1, |s| s.tcp(|tcp| tcp.ack(200))));
    assert_apart(&frames);
}

#[test]
fn p11_older_acknowledgments_with_news_come_out() {
    const SACK: [u8; 12] = [1, 1, 5, 10, 0, 0, 1, 0, 0, 0, 2, 0];
    let news: [fn(Tcp) -> Tcp; 4] =
        [|tcp| tcp.fin(), |tcp| tcp.rst(), |tcp| tcp.options(&SACK), |tcp| tcp.window(9)];
    for news in news {
        let older = at(2, move |s| s.tcp(move |tcp| news(tcp.ack(50))));
        assert_apart(&Path::Ipv4.train(&[100, 0, 0], older));
    }
}

#[test]
fn p12_three_duplicate_acknowledgments_are_three() {
    assert_apart(&Path::Ipv4.train(&[0; 3], plain));
}

#[test]
fn p13_push_on_any_packet_ends_its_superframe() {
    for place in 1..5 {
        let frames = Path::Ipv4.train(&[100; 6], at(place, |s| s.tcp(Tcp::psh)));
        let delivered = coalesce(&frames);
        assert_eq!(payload_lengths(&delivered), [100 * (place + 1), 100 * (5 - place)]);
        assert_eq!(delivered[0].closed, Close::Push);
        assert_eq!(delivered.iter().map(|out| out.bytes[47] & 8).collect::<Vec<_>>(), [8, 0]);
    }
}

#[test]
fn p14_unequal_timestamps_are_not_merged() {
    let frames = Path::Ipv4
        .train(&[100; 4], |index, s| s.tcp(move |tcp| tcp.timestamps(index as u32 / 2, 7)));
    assert_payloads(&frames, &[200, 200]);
}

#[test]
fn p17_hostile_lengths_are_no_panic() {
    let mut random = Random::new(17);
    for _ in 0..3000 {
        let path = *random.choose(&Path::ALL);
        let mut frames = path.train(&[40; 3], plain);
        for frame in &mut frames {
            for _ in 0..=random.below(3) {
                let at = random.below(frame.len());
                frame[at] = random.bits() as u8;
            }
        }
        let cut: Vec<_> = coalesce(&frames).iter().flat_map(segment).collect();
        assert_eq!(cut.len(), 3);
    }
}

// Rules: L10
#[test]
fn p18_many_flows_are_held_in_a_bounded_table() {
    let mut profile = Profile::linux();
    profile.limits.flows = 1000;
    let mut engine = Engine::new(profile);
    for frame in connections(50_000) {
        engine.push(&frame);
        assert!(engine.stats().packets_held() <= 1000);
    }
    engine.poll_end(0);
    assert_eq!(engine.delivered.len(), 50_000);
}

#[test]
fn p19_flushing_leaves_nothing_behind() {
    let mut engine = Engine::new(Profile::linux());
    for _ in 0..3 {
        connections(100).iter().for_each(|frame| {
            engine.push(frame);
        });
        engine.finish();
        assert_eq!((engine.stats().packets_held(), engine.deadline()), (0, None));
    }
    let before = engine.delivered.len();
    engine.finish();
    assert_eq!(engine.delivered.len(), before);
}

#[test]
fn p20_flows_leave_in_the_order_of_their_first_packets() {
    let frames = connections(200);
    let bytes: Vec<_> = coalesce(&frames).into_iter().map(|out| out.bytes).collect();
    assert_eq!(bytes, frames);
}

/// Tests flows in one bucket, as if their hashes were equal in the bits that select the bucket.
#[test]
fn p21_flows_of_one_bucket_are_never_merged() {
    let mut profile = Profile::linux();
    profile.table.buckets = 1;
    profile.table.choice = BucketChoice::Device;
    let flows: Vec<Vec<Vec<u8>>> = (0..8)
        .map(|port| {
            Path::Ipv4.train(&[100, 100], move |_, s| s.tcp(move |tcp| tcp.source_port(port)))
        })
        .collect();
    let frames: Vec<_> =
        (0..2).flat_map(|i| flows.iter().map(move |flow| flow[i].clone())).collect();
    assert_eq!(payload_lengths(&coalesce_with(profile, &frames)), [200; 8]);
}

#[test]
fn p22_trickle_is_released_by_the_age_of_its_first_packet() {
    let mut profile = Profile::linux();
    profile.limits.hold_ns = 1000;
    let mut engine = Engine::new(profile);
    for (index, frame) in Path::Ipv4.train(&[100; 3], plain).into_iter().enumerate() {
        let now = index as u64 * 900;
        engine.expire(now);
        engine.push_frame(Frame::new(frame), now);
    }
    assert_eq!(payload_lengths(&engine.delivered), [200]);
}

#[test]
fn p24_oldest_flow_leaves_first() {
    let mut engine = Engine::new(Profile::linux());
    let frames = connections(3);
    frames.iter().for_each(|frame| {
        engine.push(frame);
    });
    engine.finish();
    assert_eq!(engine.delivered[0].bytes, frames[0]);
}

#[test]
fn p34_tiny_segments_do_not_overflow_the_count() {
    let mut profile = Profile::linux();
    profile.limits.size_bytes = 524_280;
    profile.limits.parts = 1 << 20;
    for size in [1, 8, 47] {
        let count = 70_000_usize;
        let frames = Path::Ipv4.train(&vec![size; count], plain);
        let mut engine = Engine::new(profile.clone());
        frames.iter().for_each(|frame| {
            engine.push(frame);
        });
        engine.finish();
        let (packets, segments) =
            engine.delivered.iter().fold((0, 0), |(packets, segments), out| {
                let told = out.meta.gso.map_or(1, |gso| usize::from(gso.segments));
                (packets + out.packets as usize, segments + told)
            });
        assert_eq!((packets, segments), (count, count));
    }
}

/// Tests that identifications must increment or stay the same regardless of DF, as in Linux, because segmentation can
/// restore only such identifications.
#[test]
fn p36_random_identifications_stay_apart_also_with_df() {
    for df in [true, false] {
        let ids = [5, 900, 17];
        let frames =
            Path::Ipv4.train(&[100; 3], |index, s| s.ipv4(move |ip| ip.df(df).id(ids[index])));
        assert_apart(&frames);
    }
}

#[test]
fn p37_superframe_is_cut_into_packets_of_the_size_that_came() {
    let frames = Path::Ipv4.train(&[1000, 1000, 1000, 300], plain);
    let delivered = coalesce(&frames);
    let sizes: Vec<_> = segment(&delivered[0]).iter().map(Vec::len).collect();
    assert_eq!(sizes, frames.iter().map(Vec::len).collect::<Vec<_>>());
}

#[test]
fn p39_every_accurate_ecn_count_keeps_its_place() {
    for ace in 0..8_u16 {
        let bits = (ace & 4) << 6 | (ace & 2) << 6 | (ace & 1) << 6;
        let all = Path::Ipv4.train(&[100; 3], |_, s| s.tcp(move |tcp| tcp.flag(bits)));
        assert_payloads(&all, &[300]);
        if bits != 0 {
            let one = Path::Ipv4.train(&[100; 3], at(1, |s| s.tcp(move |tcp| tcp.flag(bits))));
            assert_apart(&one);
        }
    }
}

/// Tests that the secret seed decides which flows of a flood evict each other.
#[test]
fn p50_the_seed_decides_which_flows_collide() {
    let frames = connections(60);
    let evicted = |seed| {
        let mut profile = Profile::linux();
        profile.table.buckets = 8;
        let mut engine = Engine::with(
            profile,
            grosso_wire::LinkType::Ethernet,
            grosso_wire::Ports::ASSIGNED,
            seed,
        );
        frames.iter().for_each(|frame| {
            assert_eq!(engine.push(frame), Verdict::Held);
        });
        let full = engine.delivered.iter().filter(|out| out.closed == Close::BucketFull);
        full.map(|out| out.bytes.clone()).collect::<Vec<_>>()
    };
    assert_ne!(evicted(1), evicted(2));
    assert_eq!(evicted(3), evicted(3));
}

#[test]
fn p01_header_of_every_superframe_is_right() {
    let delivered = coalesce(&Path::Ipv4.train(&[1448; 100], plain));
    assert!(delivered.iter().all(|out| checksum(&out.bytes[14..34]) == 0));
}
