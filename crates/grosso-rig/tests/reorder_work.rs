//! Tests that reordering repair never exceeds a fixed number of instructions per packet, whatever the input. Valgrind
//! counts the instructions.
//!
//! A packet that arrives out of order costs much less than an in-order packet that is dissected and compared field by
//! field, regardless of its size, its position among the waiting packets and the number of flows (SegmentSmack).
//! Ordinary in-order packets are not a suitable reference: they are predicted, and a faster prediction would make all
//! other packets seem more expensive.

use std::hint::black_box;

use grosso::{
    CoalesceOptions, Coalescer, Delivery, Frame, Meta, Profile, checksum::Checksum,
    coalesce::Reorder,
};
use grosso_rig::{engine::PORTS, instructions, kernel::skip};
use grosso_testkit::{Packet, random::Random};
use grosso_wire::LinkType;

/// The flow and the sequence number of each packet.
type Packets = Vec<(u32, u32)>;
/// A function that returns the packets to push first, and then the packets whose instructions are counted.
type Flood = fn() -> (Packets, Packets);

/// The floods to measure.
const FLOODS: &[(&str, Flood)] = &[
    ("in order, asked law by law", || (vec![], of_one(0..COUNT))),
    ("in order", || (vec![], of_one(0..COUNT))),
    ("every other 16 packets late", || {
        let late = |at: u32| if at.is_multiple_of(2) { at } else { at + 32 };
        let mut places: Vec<u32> = (0..COUNT).collect();
        places.sort_by_key(|&at| late(at));
        (vec![], of_one(places))
    }),
    ("with gaps, each before all others", || (vec![], of_one((0..COUNT).rev().map(|at| 7 * at)))),
    ("with gaps, each before those that wait", || {
        let backwards = |at: u32| 7 * (at / 64 * 64 + 63 - at % 64);
        (vec![], of_one((0..COUNT).map(backwards)))
    }),
    ("with gaps, in random order", || {
        let mut places: Vec<u32> = (0..COUNT).map(|at| 7 * at).collect();
        places.chunks_mut(64).for_each(|chunk| Random::new(1).shuffle(chunk));
        (vec![], of_one(places))
    }),
    ("of flows that nobody continues", || (vec![], flows(0..COUNT / 2))),
    ("of such flows, into a full table", || (flows(0..20_000), flows(20_000..20_000 + COUNT / 2))),
];

/// Index of the reference flood: packets in order, without the fast tiers.
const MEASURE: usize = 0;

/// Pairs of floods, and the maximum ratio of the second's cost to the first's.
const BOUNDS: &[(usize, usize, f64)] =
    &[(0, 1, 0.25), (0, 2, 0.5), (0, 3, 0.6), (0, 4, 0.6), (0, 5, 0.6), (0, 6, 0.7), (6, 7, 1.2)];

/// Number of packets counted in each flood.
const COUNT: u32 = 8000;

#[test]
fn p31_no_order_and_no_flood_makes_a_segment_dear() {
    if let Some(flood) = instructions::case() {
        return run(flood);
    }
    let count = |flood| -> Result<f64, String> {
        let test = "reorder_work::p31_no_order_and_no_flood_makes_a_segment_dear";
        let counted = instructions::count(test, flood)? / f64::from(COUNT);
        println!("{:<44} {counted:>8.0} instructions a packet", FLOODS[flood].0);
        Ok(counted)
    };
    let counts: Result<Vec<f64>, String> = (0..FLOODS.len()).map(count).collect();
    let counts = match counts {
        Ok(counts) => counts,
        Err(why) => return skip(&why),
    };
    for &(cheap, dear, most) in BOUNDS {
        let times = counts[dear] / counts[cheap];
        assert!(times < most, "{}: {times:.2} times {}", FLOODS[dear].0, FLOODS[cheap].0);
    }
}

fn run(flood: usize) {
    let (before, counted) = FLOODS[flood].1();
    let mut profile = Profile::linux();
    profile.limits.hold_ns = 20_000;
    profile.reorder = Reorder::holes(100_000);
    let options = CoalesceOptions::new(LinkType::Ethernet, 1).profile(profile).ports(PORTS);
    let mut coalescer = match flood {
        MEASURE => Coalescer::without_tiers(options),
        _ => Coalescer::new(options),
    };
    let [before, counted] = [before, counted].map(|packets| frames(&packets));
    push(&mut coalescer, &before);
    measured(&mut coalescer, &counted);
}

/// Pushes the frames. Callgrind counts the instructions in this function.
#[inline(never)]
fn measured<'a>(coalescer: &mut Coalescer<&'a [u8]>, frames: &'a [Vec<u8>]) {
    push(coalescer, frames);
    // Prevents a tail call, so that the call above returns to this function.
    black_box(coalescer.stats());
}

/// Pushes packets 1 ns apart, so that no hold time expires, and ends a poll every 64 packets.
fn push<'a>(coalescer: &mut Coalescer<&'a [u8]>, frames: &'a [Vec<u8>]) {
    let mut now_ns = 0;
    let mut sink = |delivery: Delivery<'_, &[u8]>| drop(delivery);
    for poll in frames.chunks(64) {
        for frame in poll {
            now_ns += 1;
            let meta = Meta { checksum: Checksum::Unnecessary { levels: 0 }, ..Meta::default() };
            coalescer.push(Frame { buffer: &frame[..], meta }, now_ns, &mut sink);
        }
        coalescer.poll_end(now_ns, &mut sink);
    }
}

/// Returns packets of one connection with four bytes each, at these offsets from the first packet.
fn of_one(places: impl IntoIterator<Item = u32>) -> Packets {
    places.into_iter().map(|place| (1, 4 * place)).collect()
}

/// Returns two packets from each flow; data before the second one is missing.
fn flows(numbers: std::ops::Range<u32>) -> Packets {
    numbers.flat_map(|flow| [(flow, 0), (flow, 1000)]).collect()
}

fn frames(packets: &[(u32, u32)]) -> Vec<Vec<u8>> {
    let template = Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|tcp| tcp).payload_len(4);
    let template = template.build();
    let frame = |&(flow, sequence): &(u32, u32)| {
        let mut frame = template.clone();
        frame[34..38].copy_from_slice(&flow.to_be_bytes());
        frame[38..42].copy_from_slice(&sequence.to_be_bytes());
        frame
    };
    packets.iter().map(frame).collect()
}
