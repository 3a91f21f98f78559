//! Grosso's contenders, which run as in the benches, and a contender that only reads the bytes.

use std::hint::black_box;

use grosso::{
    CoalesceOptions, Coalescer, Delivery, Frame, Meta,
    reassemble::{Outcome, Reassembler, ReassemblyMode, ReassemblyRules},
};
use grosso_benches::{Cache, Join, Joiner, Receiver, SEED, Scatterer, Sender, Step, Trust};
use grosso_checksum::Sum;
use grosso_testkit::workloads::{POLL, Workload};
use grosso_wire::{LinkType, Ports};

use crate::{
    contender::{About, Boxed, Local, Peer, Stepped, Turns},
    polls::Polls,
    sums::Sums,
    work::Work,
};

/// Returns Grosso's contenders for a kind of work; the first one is the reference for all ratios.
pub(crate) fn contenders<'a>(work: Work, cache: Cache, workload: &'a Workload) -> Vec<Boxed<'a>> {
    let about = |variant, inside| About::new(Peer::Grosso, variant, inside);
    let packets = workload.packets;
    match work {
        Work::CoalesceTrusted | Work::CoalesceVerified => {
            let own = coalescer(work, cache, "", workload);
            match cache {
                Cache::Hot => vec![own],
                Cache::Cold => vec![own, floor(work, workload)],
            }
        }
        Work::SegmentCopy => {
            let step = Sender::new(workload);
            let about = about("", "parse, copy, sums");
            vec![Local::boxed(about, Stepped { step, cache }, packets, || {
                Sender::new(workload).packets()
            })]
        }
        Work::SegmentScatter => {
            let step = Scatterer::new(workload);
            let about = about("", "parse, headers, sums");
            vec![Local::boxed(about, Stepped { step, cache }, packets, || {
                Scatterer::new(workload).packets()
            })]
        }
        Work::Reassemble => {
            let joiner = |join, variant, inside| {
                let step = Joiner::new(workload, join);
                let turns = Stepped { step, cache };
                Local::boxed(about(variant, inside), turns, packets, move || {
                    reassembled(workload, join)
                })
            };
            vec![
                joiner(Join::Verify, "", "parse, copy, verify"),
                joiner(Join::Coalesce, "headers verified", "parse, copy, every rule"),
                joiner(Join::KeepGeometry, "buffers kept", "parse, every rule"),
            ]
        }
        Work::Checksum => vec![Sums::boxed(about("", ""), workload, |bytes| Sum::of(bytes).fold())],
    }
}

/// Returns Grosso's coalescer for a workload. `variant` names the workload if a row has several.
pub(crate) fn coalescer<'a>(
    work: Work,
    cache: Cache,
    variant: &'static str,
    workload: &'a Workload,
) -> Boxed<'a> {
    let (trust, inside) = match work {
        Work::CoalesceTrusted => (Trust::Trusted, "parse, every rule"),
        _ => (Trust::Verified, "parse, verify, every rule"),
    };
    let about = About::new(Peer::Grosso, variant, inside);
    let output = move || coalesced(workload, trust);
    if cache == Cache::Hot && trust == Trust::Verified && has_long_polls(workload) {
        return Local::boxed(about, Refilled::new(workload, trust), workload.packets, output);
    }
    let step = Receiver::new(workload, trust).fetching(cache);
    Local::boxed(about, Stepped { step, cache }, workload.packets, output)
}

/// Returns whether a poll fills most of a second-level cache.
fn has_long_polls(workload: &Workload) -> bool {
    let poll = &workload.frames[..workload.frames.len().min(POLL)];
    poll.iter().map(Vec::len).sum::<usize>() > LONG_POLL_BYTES
}

/// Coalescer whose buffers are reused for every poll and filled outside the timed part, as the peers' buffers are.
///
/// If the payload is read and polls are long, only this method does the same work as the peers. Refilled buffers stay
/// in the second-level cache, whereas half of a trace that was just read is evicted. With packets of 9000 bytes, Grosso
/// took 145 to 260 ns per packet from the trace, and 92 to 130 ns from buffers. Passing buffers in and returning them
/// costs 4 ns.
struct Refilled<'a> {
    polls: Polls<'a>,
    coalescer: Coalescer<Vec<u8>>,
    meta: Meta,
    /// The packets for the next poll.
    filled: Vec<Vec<u8>>,
    /// Buffers from the previous poll.
    spare: Vec<Vec<u8>>,
    delivered_bytes: usize,
}

impl<'a> Refilled<'a> {
    fn new(workload: &'a Workload, trust: Trust) -> Self {
        Self {
            polls: Polls::new(workload),
            coalescer: Coalescer::new(CoalesceOptions::new(LinkType::Ethernet, SEED)),
            meta: Meta { checksum: trust.checksum(), ..Meta::default() },
            filled: Vec::with_capacity(POLL),
            spare: Vec::with_capacity(POLL),
            delivered_bytes: 0,
        }
    }
}

impl Turns for Refilled<'_> {
    fn prepare(&mut self) {
        for frame in self.polls.take() {
            let mut buffer = self.spare.pop().unwrap_or_default();
            buffer.clear();
            buffer.extend_from_slice(frame);
            self.filled.push(buffer);
        }
    }

    fn turn(&mut self) -> usize {
        let Self { coalescer, meta, filled, spare, delivered_bytes, .. } = self;
        let packets = filled.len();
        let mut sink = |mut delivery: Delivery<'_, Vec<u8>>| {
            *delivered_bytes += delivery.header().len();
            while let Some(part) = delivery.next_part() {
                *delivered_bytes += part.bytes().len();
                spare.push(part.buffer);
            }
        };
        for buffer in filled.drain(..) {
            let _ = coalescer.push(Frame { buffer, meta: *meta }, 0, &mut sink);
        }
        coalescer.poll_end(0, &mut sink);
        black_box(*delivered_bytes);
        packets
    }
}

/// Returns a contender that only reads the bytes which the work would have to read from a cold trace.
fn floor(work: Work, workload: &Workload) -> Boxed<'_> {
    let payload = work == Work::CoalesceVerified;
    let inside = if payload { "reads every byte" } else { "reads the line of each header" };
    let step = Reader { polls: Polls::new(workload), payload };
    let about = About::new(Peer::Machine, "", inside);
    let turns = Stepped { step, cache: Cache::Cold };
    Local::boxed(about, turns, workload.packets, || workload.frames.clone())
}

/// A step that only reads frames from memory, poll by poll.
struct Reader<'a> {
    polls: Polls<'a>,
    payload: bool,
}

impl Step for Reader<'_> {
    fn upcoming(&self) -> impl Iterator<Item = &[u8]> {
        self.polls.upcoming().iter().map(Vec::as_slice)
    }

    fn step(&mut self) -> usize {
        let poll = self.polls.take();
        let mut total = 0_u64;
        for frame in poll {
            let read = if self.payload { frame } else { &frame[..HEADER_LINE_BYTES] };
            let words = read.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word));
            total = words.fold(total, u64::wrapping_add);
        }
        black_box(total);
        poll.len()
    }
}

fn coalesced(workload: &Workload, trust: Trust) -> Vec<Vec<u8>> {
    let mut coalescer = Coalescer::new(CoalesceOptions::new(LinkType::Ethernet, SEED));
    let meta = Meta { checksum: trust.checksum(), ..Meta::default() };
    let mut frames = Vec::new();
    let mut sink = |delivery: Delivery<'_, &[u8]>| {
        let mut frame = Vec::new();
        delivery.copy_to(&mut frame);
        frames.push(frame);
    };
    for poll in workload.frames.chunks(POLL) {
        for frame in poll {
            let _ = coalescer.push(Frame { buffer: frame.as_slice(), meta }, 0, &mut sink);
        }
        coalescer.poll_end(0, &mut sink);
    }
    frames
}

fn reassembled(workload: &Workload, join: Join) -> Vec<Vec<u8>> {
    let mut rules = ReassemblyRules::new(match join {
        Join::KeepGeometry => ReassemblyMode::KeepGeometry,
        Join::Coalesce | Join::Verify => ReassemblyMode::Coalesce,
    });
    rules.verify = join == Join::Verify;
    let reassembler = Reassembler::new(rules, LinkType::Ethernet, Ports::ASSIGNED, SEED);
    let mut reassembler = reassembler.expect("rules without contradictions");
    let mut frames = Vec::new();
    let mut sink = |outcome: Outcome<'_, &[u8]>| {
        if let Outcome::Datagram(datagram) = outcome {
            let mut frame = Vec::new();
            datagram.copy_to(&mut frame);
            frames.push(frame);
        }
    };
    for frame in &workload.frames {
        let _ = reassembler.push(Frame::new(frame.as_slice()), 0, &mut sink);
    }
    frames
}

/// The first cache line of a frame, which holds all or most of its headers.
const HEADER_LINE_BYTES: usize = 64;

/// Minimum number of bytes in a long poll. A poll of full Ethernet frames has 96 KB, and one of jumbo frames has 577
/// KB; second-level caches have 512 KB to 2 MB.
const LONG_POLL_BYTES: usize = 256 << 10;
