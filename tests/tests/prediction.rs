//! Tests header prediction: a packet that matches its train's prediction gets the same verdict as if it were compared
//! field by field.

use grosso::{
    CoalesceOptions, Coalescer, Delivery, Frame, Meta, Profile, Sink, Verdict,
    checksum::{Checksum, make_partial},
    coalesce::reason::{Close, NoMerge, Pass},
    meta::VlanTag,
};
use grosso_rig::engine::{Engine, Out, PORTS, segment};
use grosso_testkit::{Packet, oracle::checksum};
use grosso_wire::{Kind, LinkType, dissect};

/// Function that returns the packet with this number in a connection.
type Numbered = fn(u16) -> Vec<u8>;

const STACKS: [(&str, Numbered); 8] = [
    ("ip4 tcp", |n| tcp(ip4(link(), n), n)),
    ("ip6 tcp", |n| tcp(link().ipv6(|ip| ip.flow_label(7)), n)),
    ("ip4 udp", |n| ip4(link(), n).udp(|udp| udp).payload_len(PAYLOAD).build()),
    ("ip4 ip6 tcp", |n| tcp(ip4(link(), n).ipv6(|ip| ip), n)),
    ("gre with a checksum", |n| tcp(ip4(ip4(link(), n).gre(|gre| gre.key(5).checksum()), n), n)),
    ("vxlan", |n| tcp(ip4(ip4(link(), n).udp(|udp| udp).vxlan(|v| v).ethernet(|e| e), n), n)),
    ("vxlan without a checksum", |n| {
        let around = ip4(link(), n).udp(|udp| udp.checksum_zero()).vxlan(|v| v);
        tcp(ip4(around.ethernet(|e| e), n), n)
    }),
    ("gue with remote checksum offload", |n| {
        tcp(ip4(ip4(link(), n).udp(|udp| udp).gue(|gue| gue.remote_checksum()), n), n)
    }),
];

fn link() -> Packet {
    Packet::new().ethernet(|e| e)
}

fn ip4(packet: Packet, number: u16) -> Packet {
    // No single bit flip converts the second packet's identification to the first packet's.
    packet.ipv4(|ip| ip.id(number.wrapping_add(FIRST_ID)))
}

fn tcp(packet: Packet, number: u16) -> Vec<u8> {
    let sequence = FIRST_SEQUENCE.wrapping_add(u32::from(number) * PAYLOAD as u32);
    packet.tcp(|tcp| tcp.sequence(sequence)).payload_len(PAYLOAD).build()
}

/// Returns the verdict on a packet after `before` packets of its train, and the deliveries that it causes.
fn outcome(stack: Numbered, before: u16, packet: &[u8], meta: Meta) -> (Verdict, Vec<Close>) {
    let mut engine = Engine::new(Profile::linux());
    for number in 0..before {
        let verdict = engine.push_frame(trusted(stack(number)), 0);
        assert_eq!(verdict, if number == 0 { Verdict::Held } else { Verdict::Joined });
    }
    let verdict = engine.push_frame(Frame { buffer: packet.to_vec(), meta }, 0);
    (verdict, engine.delivered.iter().map(|out| out.closed).collect())
}

/// Returns an outcome without the parts that depend on numbers in the packet.
fn comparable(outcome: (Verdict, Vec<Close>)) -> (Verdict, Vec<Close>) {
    match outcome {
        // Whether a number is ahead or behind makes no difference here.
        (Verdict::Refused(NoMerge::TcpSequenceBehind), closed) => {
            (Verdict::Refused(NoMerge::TcpSequenceAhead), closed)
        }
        // If a header is missing, a packet may be refused because of the next header's contents, so all refusals count
        // as equal.
        (Verdict::Passed(_), _) => (Verdict::Passed(Pass::Malformed), vec![]),
        outcome => outcome,
    }
}

fn trusted(buffer: Vec<u8>) -> Frame<Vec<u8>> {
    Frame { buffer, meta: TRUSTED }
}

/// Corrects the checksums of all IPv4 headers.
fn repair(packet: &mut [u8], like: &[u8]) {
    let stack = dissect(like, LinkType::Ethernet, &PORTS);
    for layer in stack.layers().iter().filter(|layer| layer.kind == Kind::Ipv4) {
        let header = &mut packet[layer.offset.into()..layer.end()];
        header[10..12].fill(0);
        let checksum = checksum(header).to_be_bytes();
        header[10..12].copy_from_slice(&checksum);
    }
}

#[test]
fn every_bit_of_a_header_counts_as_much_predicted_as_compared() {
    for (name, stack) in STACKS {
        let header_len = dissect(&stack(1), LinkType::Ethernet, &PORTS).header_len();
        for bit in 0..header_len * 8 {
            for is_repaired in [false, true] {
                let judged = |before: u16| {
                    let right = stack(before);
                    let mut packet = right.clone();
                    packet[bit / 8] ^= 0x80 >> (bit % 8);
                    if is_repaired {
                        repair(&mut packet, &right);
                    }
                    comparable(outcome(stack, before, &packet, TRUSTED))
                };
                assert_eq!(judged(4), judged(1), "{name}: bit {bit} {is_repaired}");
            }
        }
    }
}

/// Tests the first packet of a train, which is compared with the remembered headers of an earlier train of the flow.
#[test]
fn every_bit_counts_as_much_behind_a_train_that_left() {
    for (name, stack) in STACKS {
        let header_len = dissect(&stack(1), LinkType::Ethernet, &PORTS).header_len();
        for bit in 0..header_len * 8 {
            for (meta, is_repaired) in [(TRUSTED, false), (TRUSTED, true), (Meta::default(), true)]
            {
                let mut packets: Vec<_> = (0..8).map(stack).collect();
                let right = packets[4].clone();
                packets[4][bit / 8] ^= 0x80 >> (bit % 8);
                if is_repaired {
                    repair(&mut packets[4], &right);
                }
                let [with, without] = [Coalescer::new, Coalescer::without_tiers].map(|new| {
                    let options = CoalesceOptions::new(LinkType::Ethernet, 1).ports(PORTS);
                    left(new(options), &packets, meta)
                });
                assert_eq!(with, without, "{name}: bit {bit} {is_repaired}");
            }
        }
    }
}

/// Tests the third packet, which is predicted; the fifth, which starts a new train like the previous one; and the
/// seventh, which is predicted in the new train.
#[test]
fn every_bit_counts_as_much_where_checksums_are_left_to_a_device() {
    for (name, stack) in STACKS {
        let header_len = dissect(&stack(1), LinkType::Ethernet, &PORTS).header_len();
        let mut meta = TRUSTED;
        let packets: Vec<_> = (0..8)
            .map(|number| {
                let mut packet = stack(number);
                let layers = dissect(&packet, LinkType::Ethernet, &PORTS);
                meta.checksum = make_partial(&mut packet, &layers);
                packet
            })
            .collect();
        for (changed, bit) in
            [2, 4, 6].into_iter().flat_map(|n| (0..header_len * 8).map(move |bit| (n, bit)))
        {
            let mut packets = packets.clone();
            packets[changed][bit / 8] ^= 0x80 >> (bit % 8);
            let [with, without] = [Coalescer::new, Coalescer::without_tiers].map(|new| {
                left(new(CoalesceOptions::new(LinkType::Ethernet, 1).ports(PORTS)), &packets, meta)
            });
            assert_eq!(with, without, "{name}: packet {changed}, bit {bit}");
        }
    }
}

/// Returns the verdicts on packets, with the end of a poll after the fourth packet, and the delivered frames.
fn left(
    mut coalescer: Coalescer<Vec<u8>>,
    packets: &[Vec<u8>],
    meta: Meta,
) -> (Vec<Verdict>, Vec<Out>) {
    let (mut verdicts, mut frames) = (Vec::new(), Vec::new());
    let sink: &mut dyn Sink<_> = &mut |delivery: Delivery<'_, Vec<u8>>| {
        let mut bytes = Vec::new();
        delivery.copy_to(&mut bytes);
        let (meta, packets, closed) = (delivery.meta, delivery.packets, delivery.closed);
        frames.push(Out { bytes, meta, packets, joined: delivery.is_joined(), closed });
    };
    for (number, packet) in packets.iter().enumerate() {
        if number == 4 {
            coalescer.poll_end(0, sink);
        }
        verdicts.push(coalescer.push(Frame { buffer: packet.clone(), meta }, 0, sink));
    }
    coalescer.finish(sink);
    (verdicts, frames)
}

/// Sets two bytes at every offset, including those of checksums, to values that no single bit flip produces from a
/// correct packet.
#[test]
fn every_word_of_zeros_or_ones_is_predicted_alike() {
    for (name, stack) in STACKS {
        let header_len = dissect(&stack(1), LinkType::Ethernet, &PORTS).header_len();
        for (at, word) in (0..header_len - 1).flat_map(|at| [(at, 0), (at, 0xff)]) {
            let judged = |before: u16| {
                let right = stack(before);
                let mut packet = right.clone();
                packet[at..at + 2].fill(word);
                repair(&mut packet, &right);
                comparable(outcome(stack, before, &packet, TRUSTED))
            };
            assert_eq!(judged(4), judged(1), "{name}: {word:#x} at {at}");
        }
    }
}

/// Tests a correct checksum of all ones, which no sender writes.
#[test]
fn minus_zero_as_a_checksum_counts_as_much() {
    let judged = |before| {
        let mut packet = (STACKS[0].1)(before);
        let at = 34 + 16;
        let old = [packet[at], packet[at + 1]];
        // The end of the payload is changed so that the checksum becomes zero. It is then written as all ones.
        let end = packet.len() - 2;
        let moved = checksum(&[&packet[end..], &old[..]].concat());
        packet[end..].copy_from_slice(&(!moved).to_be_bytes());
        packet[at..at + 2].fill(0xff);
        outcome(STACKS[0].1, before, &packet, Meta { checksum: Checksum::None, ..TRUSTED }).0
    };
    assert_eq!(judged(4), Verdict::Passed(Pass::ChecksumForm));
    assert_eq!(judged(4), judged(1));
}

#[test]
fn unverified_payload_is_predicted_alike() {
    for (name, stack) in STACKS {
        for levels in 0..4 {
            let judged = |before: u16| {
                let mut packet = stack(before);
                *packet.last_mut().unwrap() ^= 1;
                let meta = Meta { checksum: Checksum::Unnecessary { levels }, ..TRUSTED };
                outcome(stack, before, &packet, meta)
            };
            assert_eq!(judged(4), judged(1), "{name}: {levels}");
        }
    }
}

#[test]
fn metadata_is_predicted_like_bytes() {
    let tag = VlanTag { protocol: 0x8100, tci: 3 };
    let known = [
        Meta { vlan: Some(tag), ..TRUSTED },
        Meta { checksum: Checksum::None, ..TRUSTED },
        Meta { checksum: Checksum::Unnecessary { levels: 0 }, ..TRUSTED },
        Meta { checksum: Checksum::Complete { sum: 0x1234 }, ..TRUSTED },
        Meta { checksum: Checksum::Partial { start: 34, offset: 16 }, ..TRUSTED },
        Meta { checksum: Checksum::Partial { start: 34, offset: 6 }, ..TRUSTED },
        Meta { gso: grosso::meta::Gso::every(50), ..TRUSTED },
    ];
    for (name, stack) in STACKS {
        for meta in known {
            let judged = |before| outcome(stack, before, &stack(before), meta);
            assert_eq!(judged(4), judged(1), "{name}: {meta:?}");
        }
    }
}

#[test]
fn a_seed_in_place_of_a_checksum_counts_as_much() {
    for (name, stack, offset) in [("ip4 tcp", STACKS[0].1, 16), ("ip4 udp", STACKS[2].1, 6)] {
        let judged = |before| {
            let Frame { buffer, meta } = seeded(stack(before), offset);
            outcome(stack, before, &buffer, meta)
        };
        assert_eq!(judged(4).0, Verdict::Refused(NoMerge::ChecksumState), "{name}");
        assert_eq!(judged(4), judged(1), "{name}");
    }
}

#[test]
fn a_checksum_in_place_of_a_seed_counts_as_much() {
    for (name, stack, offset) in [("ip4 tcp", STACKS[0].1, 16), ("ip4 udp", STACKS[2].1, 6)] {
        let judged = |before| {
            let mut engine = Engine::new(Profile::linux());
            for number in 0..before {
                engine.push_frame(seeded(stack(number), offset), 0);
            }
            engine.push_frame(trusted(stack(before)), 0)
        };
        assert_eq!(judged(4), Verdict::Refused(NoMerge::ChecksumState), "{name}");
        assert_eq!(judged(4), judged(1), "{name}");
    }
}

/// Returns a packet with a partial checksum at this offset from the start of its transport header.
fn seeded(mut packet: Vec<u8>, offset: u16) -> Frame<Vec<u8>> {
    let meta = Meta { checksum: Checksum::Partial { start: 34, offset }, ..TRUSTED };
    let at = usize::from(34 + offset);
    let seed = checksum(&pseudo_header(&packet)) ^ 0xffff;
    packet[at..at + 2].copy_from_slice(&seed.to_be_bytes());
    Frame { buffer: packet, meta }
}

/// Returns the addresses, protocol and length of the pseudo-header of IPv4 after Ethernet.
fn pseudo_header(packet: &[u8]) -> Vec<u8> {
    let len = u16::try_from(packet.len() - 34).unwrap().to_be_bytes();
    [&packet[26..34], &[0, packet[23]], &len].concat()
}

#[test]
fn lengths_count_as_much() {
    for (name, stack) in STACKS {
        let lengthened = |number: u16, by: isize| {
            let mut packet = stack(number);
            let len = packet.len().checked_add_signed(by).unwrap();
            packet.resize(len, 0);
            packet
        };
        for by in [-60, -1, 1, 60] {
            let judged = |before| outcome(stack, before, &lengthened(before, by), TRUSTED);
            assert_eq!(judged(4), judged(1), "{name}: {by}");
        }
    }
}

#[test]
fn every_bit_counts_of_a_packet_that_passes_as_those_before_it_did() {
    let pushed = |around: Packet| around.tcp(|tcp| tcp.psh()).payload_len(PAYLOAD).build();
    let vxlan = ip4(link(), 1).udp(|udp| udp).vxlan(|v| v).ethernet(|e| e);
    let packets = [
        ("ip4", pushed(ip4(link(), 1))),
        ("ip6", pushed(link().ipv6(|ip| ip))),
        ("vxlan", pushed(ip4(vxlan, 1))),
    ];
    for (name, packet) in packets {
        // The second packet passes because the engine knows the headers of the first one. Packets after the third one
        // pass because the engine knows their form.
        let outcome = |before: usize, changed: &[u8], meta: Meta| {
            let mut engine = Engine::new(Profile::linux());
            for _ in 0..before {
                let passed = engine.push_frame(trusted(packet.clone()), 0);
                assert_eq!(passed, Verdict::Passed(Pass::TcpPush), "{name}");
            }
            let verdict = engine.push_frame(Frame { buffer: changed.to_vec(), meta }, 0);
            engine.finish();
            (verdict, engine.delivered.last().map(|out| (out.meta, out.closed)))
        };
        for bit in 0..8 * (packet.len() - PAYLOAD) {
            let mut changed = packet.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let mut repaired = changed.clone();
            repair(&mut repaired, &packet);
            for (changed, meta) in [(&changed, TRUSTED), (&repaired, TRUSTED), (&repaired, UNREAD)]
            {
                assert_eq!(outcome(4, changed, meta), outcome(1, changed, meta), "{name} {bit}");
            }
        }
    }
}

#[test]
fn numbers_wrap_within_a_train() {
    for (name, stack) in STACKS {
        let packets: Vec<_> = (0..60).map(stack).collect();
        let mut engine = Engine::new(Profile::linux());
        packets.iter().for_each(|packet| _ = engine.push(packet));
        engine.finish();
        assert_eq!(engine.delivered.len(), 1, "{name}");
        assert_eq!(segment(&engine.delivered[0]), packets, "{name}");
    }
}

#[test]
fn a_train_has_the_limits_that_it_has_without_prediction() {
    let profile = |edit: fn(&mut Profile)| {
        let mut profile = Profile::linux();
        edit(&mut profile);
        profile
    };
    let by_count =
        profile(|profile| (profile.limits.tcp_segments, profile.limits.udp_segments) = (7, 7));
    let by_size = profile(|profile| profile.limits.size_bytes = 1000);
    let by_parts = profile(|profile| profile.limits.parts = 5);
    for (name, stack) in STACKS {
        for (profile, most) in [(&by_count, 7), (&by_size, 9), (&by_parts, 6)] {
            let mut engine = Engine::new(profile.clone());
            (0..40).for_each(|number| _ = engine.push(&stack(number)));
            let (all, closed): (Vec<_>, Vec<_>) =
                engine.delivered.iter().map(|out| (out.packets, out.closed)).unzip();
            assert!(
                all.iter().all(|&packets| packets == all[0] && packets <= most),
                "{name} {all:?}"
            );
            assert!(
                all[0] > 4 && closed.iter().all(|&reason| reason == closed[0]),
                "{name} {closed:?}"
            );
        }
    }
}

#[test]
fn the_last_of_datagrams_delivers_them_at_once() {
    let mut profile = Profile::linux();
    profile.limits.udp_segments = 7;
    let (name, stack) = STACKS[2];
    let mut engine = Engine::new(profile);
    (0..6).for_each(|number| _ = engine.push(&stack(number)));
    assert_eq!(engine.delivered.len(), 0, "{name}");
    engine.push(&stack(6));
    let ends: Vec<_> = engine.delivered.iter().map(|out| (out.packets, out.closed)).collect();
    assert_eq!(ends, [(7, Close::SegmentLimit)], "{name}");
}

#[test]
fn numbers_that_a_train_expected_are_forgotten_with_it() {
    for (name, stack) in STACKS {
        let mut engine = Engine::new(Profile::linux());
        (0..4).for_each(|number| _ = engine.push(&stack(number)));
        engine.poll_end(0);
        // After a gap, another train of the flow starts. The packet that the first train expected comes before it in
        // sequence.
        assert_eq!(engine.push(&stack(9)), Verdict::Held, "{name}");
        assert!(
            matches!(engine.push(&stack(4)), Verdict::Refused(_)) || name == "ip4 udp",
            "{name}"
        );
    }
}

const UNREAD: Meta = Meta { checksum: Checksum::None, ..TRUSTED };

const TRUSTED: Meta = Meta {
    checksum: Checksum::Unnecessary { levels: u8::MAX },
    gso: None,
    vlan: None,
    hash: None,
    timestamp_ns: None,
    fragmented: None,
};
const PAYLOAD: usize = 100;
const FIRST_ID: u16 = 0xfff1;
const FIRST_SEQUENCE: u32 = 0xffff_fd01;
