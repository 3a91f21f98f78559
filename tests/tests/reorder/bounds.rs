//! Tests that memory and time stay bounded for any sender: tiny segments out of order (SegmentSmack), a million flows,
//! and wasteful buffers.

use grosso::{
    CoalesceOptions, Coalescer, Delivery, Frame, Meta, Profile, Sink,
    checksum::Checksum,
    coalesce::{Reorder, reason::Release},
};
use grosso_rig::{
    allocator::{allocations, live_bytes},
    engine::PORTS,
};
use grosso_testkit::{Packet, random::Random};
use grosso_wire::LinkType;

use super::connection::{Connection, holes};

/// Returns a frame with `len` bytes of payload whose checksum the device verified.
fn template(len: usize) -> Vec<u8> {
    Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|tcp| tcp).payload_len(len).build()
}

/// Returns the template, changed to a packet in this flow with this sequence number.
fn of(template: &[u8], flow: u32, sequence: u32) -> Frame<Vec<u8>> {
    let mut buffer = template.to_vec();
    buffer[34..38].copy_from_slice(&flow.to_be_bytes());
    buffer[38..42].copy_from_slice(&sequence.to_be_bytes());
    let checksum = Checksum::Unnecessary { levels: 0 };
    Frame { buffer, meta: Meta { checksum, ..Meta::default() } }
}

/// A coalescer, and the number of packets that it returned.
struct Target {
    coalescer: Coalescer<Vec<u8>>,
    left: u64,
    now_ns: u64,
}

impl Target {
    fn new(profile: Profile) -> Self {
        let coalescer = Coalescer::new(
            CoalesceOptions::new(LinkType::Ethernet, 9).profile(profile).ports(PORTS),
        );
        Self { coalescer, left: 0, now_ns: 0 }
    }

    /// Pushes a packet every 100 ns, and calls `expire` every 64 packets.
    fn push(&mut self, frame: Frame<Vec<u8>>) {
        let Self { coalescer, left, now_ns } = self;
        let sink: &mut dyn Sink<_> =
            &mut |delivery: Delivery<'_, _>| *left += u64::from(delivery.packets);
        *now_ns += 100;
        coalescer.push(frame, *now_ns, sink);
        if (*now_ns / 100).is_multiple_of(64) {
            coalescer.poll_end(*now_ns, sink);
        }
    }

    fn finish(mut self) {
        let Self { coalescer, left, .. } = &mut self;
        let sink: &mut dyn Sink<_> =
            &mut |delivery: Delivery<'_, _>| *left += u64::from(delivery.packets);
        coalescer.finish(sink);
        assert_eq!(self.left, self.coalescer.stats().packets_in, "every packet leaves");
    }
}

#[test]
fn p31_p33_tiny_segments_out_of_order_take_no_more_memory_than_one_flow_may() {
    let template = template(1);
    let mut target = Target::new(holes());
    let mut random = Random::new(31);
    let (mut peak, start) = (0, live_bytes());
    for _ in 0..200_000 {
        // Every other byte arrives, in random order, so each byte is a separate run.
        target.push(of(&template, 1, 2 * random.below(1 << 20) as u32));
        peak = peak.max(live_bytes() - start);
    }
    let stats = target.coalescer.stats().reorder;
    let limits = target.coalescer.profile().reorder;
    assert!(stats.bytes_max <= (limits.flow_bytes + 4096) as u64, "{stats:?}");
    assert!(stats.released[Release::FlowRuns.index()] > 0, "{stats:?}");
    // This limit covers one flow's runs, and the coalescer's tables after they have grown.
    assert!(peak < 1 << 20, "{peak} bytes");
    target.finish();
}

// Rules: L10
#[test]
fn p18_a_million_flows_that_all_wait_take_no_more_memory_than_the_first_thousands() {
    let template = template(10);
    let mut target = Target::new(holes());
    let (mut warm, mut peak, start) = (0, 0, live_bytes());
    for flow in 0..1_000_000 {
        // Each flow has a waiting packet: its first packet passes, and a later one that is ahead of sequence waits.
        target.push(of(&template, flow, 1));
        target.push(of(&template, flow, 1000));
        peak = peak.max(live_bytes() - start);
        if flow == 20_000 {
            warm = peak;
        }
    }
    assert_eq!(peak, warm, "bytes at most, in the end and when 20000 flows had come");
    let stats = target.coalescer.stats().reorder;
    assert!(stats.released[Release::Evicted.index()] > 900_000, "{stats:?}");
    target.finish();
}

#[test]
fn all_flows_together_wait_with_no_more_memory_than_the_queue_may() {
    let template = template(1000);
    let mut profile = holes();
    profile.reorder.queue_bytes = 100_000;
    let mut target = Target::new(profile);
    for place in 0..10_000_u32 {
        // There are 64 flows, each with every other segment missing.
        target.push(of(&template, place % 64, place / 64 * 2000));
    }
    let stats = target.coalescer.stats().reorder;
    assert!(stats.bytes_max <= 100_000, "{stats:?}");
    assert!(stats.released[Release::QueueBytes.index()] > 0, "{stats:?}");
    target.finish();
}

#[test]
fn p33_memory_is_that_of_the_buffers_however_little_they_carry() {
    let mut profile = holes();
    profile.reorder.buffer_bytes = 60_000;
    let mut flow = Connection::begun(profile);
    flow.push(&[2, 3, 4, 5]);
    assert_eq!((flow.waiting(), flow.released(Release::FlowBytes)), (4, 0));
    flow.push(&[6]);
    assert_eq!((flow.waiting(), flow.released(Release::FlowBytes)), (0, 5));
    // The flow no longer waits for the missing packets.
    flow.push(&[7]);
    assert_eq!(flow.waiting(), 0);
}

#[test]
fn more_runs_than_may_let_everything_leave_in_sequence() {
    let mut profile = holes();
    profile.reorder.flow_runs = 3;
    let mut flow = Connection::begun(profile);
    flow.push(&[6, 2, 4]);
    assert_eq!(flow.waiting(), 3);
    flow.push(&[8]);
    assert_eq!(flow.left(), [[2], [4], [6], [8]]);
    assert_eq!(flow.released(Release::FlowRuns), 4);
}

#[test]
fn nothing_is_allocated_once_warm() {
    let template = template(500);
    let mut random = Random::new(4);
    let mut profile = holes();
    profile.reorder = Reorder::holes(30_000);
    let mut coalescer =
        Coalescer::new(CoalesceOptions::new(LinkType::Ethernet, 9).profile(profile).ports(PORTS));
    // In each of several equal rounds, flows start and end, with skew and loss.
    let mut sequence = Vec::new();
    for place in 0..20_000_u32 {
        let flow = 1 + place % 10 + 10 * (place / 2000);
        let at = u64::from(place) * 1_000 + [0, 20_000][random.below(2)];
        if !random.one_in(50) {
            sequence.push((at, of(&template, flow, place / 10 * 500)));
        }
    }
    sequence.sort_by_key(|(at, _)| *at);
    let mut run = |round: u64| {
        let before = allocations();
        for (index, (at, frame)) in sequence.iter().enumerate() {
            let now_ns = round * 1_000_000_000 + at;
            let frame = Frame { buffer: &frame.buffer[..], meta: frame.meta };
            let sink: &mut dyn Sink<_> = &mut |delivery: Delivery<'_, _>| drop(delivery);
            coalescer.push(frame, now_ns, sink);
            if index % 32 == 0 {
                coalescer.poll_end(now_ns, sink);
            }
        }
        allocations() - before
    };
    let warming: u64 = (0..3).map(&mut run).sum();
    assert!(warming > 0);
    assert_eq!(run(3), 0);
    assert!(coalescer.stats().reorder.released[Release::Filled.index()] > 1000);
}
