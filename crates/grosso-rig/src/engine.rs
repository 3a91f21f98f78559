//! A wrapper that runs the engine in tests: it takes frames and records what the engine delivers.

use grosso::{
    CoalesceOptions, Coalescer, Delivery, Frame, Meta, Profile, Sink, Verdict,
    coalesce::{Part, reason::Close},
    meta::Cwr,
    segment::{HEADER_BYTES_MAX, NoSegments, Outgoing, Segments},
    stats::CoalesceStats,
};
use grosso_testkit::{
    flows::{assert_conserved, assert_order_within_flows},
    oracle::{FOU_PORT, Link, join},
};
use grosso_wire::{CookieLen, LinkType, Ports, Pseudowire};

/// The assigned tunnel ports, plus the test kit's FOU port (with IPv4) and L2TPv3 session format.
pub const PORTS: Ports = Ports::ASSIGNED.with_fou(FOU_PORT, 4).with_l2tp(Some(L2TP));

/// The format of the test kit's L2TPv3 sessions.
const L2TP: Pseudowire = Pseudowire { cookie: CookieLen::Four, has_sublayer: true };

/// A copy of a delivered frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Out {
    /// The bytes of the frame.
    pub bytes: Vec<u8>,
    /// The metadata of the frame.
    pub meta: Meta,
    /// Number of wire packets in the frame.
    pub packets: u32,
    /// Whether packets were merged.
    pub joined: bool,
    /// Reason why the frame was delivered.
    pub closed: Close,
}

/// A coalescer that records its deliveries.
pub struct Engine {
    coalescer: Coalescer<Vec<u8>>,
    /// All deliveries so far, in order.
    pub delivered: Vec<Out>,
    /// The verdicts on the pushed frames, in order.
    pub verdicts: Vec<Verdict>,
    /// The buffers that the engine has returned, in order.
    pub buffers: Vec<Vec<u8>>,
}

impl Engine {
    /// Creates an engine for Ethernet frames with the tunnel ports of [`PORTS`] and seed 1.
    #[must_use]
    pub fn new(profile: Profile) -> Self {
        Self::with(profile, LinkType::Ethernet, PORTS, 1)
    }

    /// Creates an engine for any link type and seed.
    #[must_use]
    pub fn with(profile: Profile, link: LinkType, ports: Ports, seed: u64) -> Self {
        Self {
            coalescer: Coalescer::new(
                CoalesceOptions::new(link, seed).profile(profile).ports(ports),
            ),
            delivered: Vec::new(),
            verdicts: Vec::new(),
            buffers: Vec::new(),
        }
    }

    /// Pushes a frame without metadata, at time zero.
    pub fn push(&mut self, bytes: &[u8]) -> Verdict {
        self.push_frame(Frame::new(bytes.to_vec()), 0)
    }

    /// Pushes a frame.
    pub fn push_frame(&mut self, frame: Frame<Vec<u8>>, now_ns: u64) -> Verdict {
        let verdict = self.step(|coalescer, sink| coalescer.push(frame, now_ns, sink));
        self.verdicts.push(verdict);
        verdict
    }

    /// Pushes a frame that must be delivered alone and unchanged.
    pub fn push_excluded(&mut self, bytes: &[u8]) -> Verdict {
        let frame = Frame::new(bytes.to_vec());
        let verdict = self.step(|coalescer, sink| coalescer.push_excluded(frame, sink));
        self.verdicts.push(verdict);
        verdict
    }

    /// Ends a poll.
    pub fn poll_end(&mut self, now_ns: u64) {
        self.step(|coalescer, sink| coalescer.poll_end(now_ns, sink));
    }

    /// Ends a poll that used its whole budget.
    pub fn poll_end_full(&mut self, now_ns: u64) {
        self.step(|coalescer, sink| coalescer.poll_end_full(now_ns, sink));
    }

    /// Delivers the trains whose hold times have expired.
    pub fn expire(&mut self, now_ns: u64) {
        self.step(|coalescer, sink| coalescer.expire(now_ns, sink));
    }

    /// Delivers all held packets.
    pub fn finish(&mut self) {
        self.step(|coalescer, sink| coalescer.finish(sink));
    }

    /// Runs `step` on the coalescer, and records the deliveries.
    fn step<T>(
        &mut self,
        act: impl FnOnce(&mut Coalescer<Vec<u8>>, &mut dyn Sink<Vec<u8>>) -> T,
    ) -> T {
        let Self { coalescer, delivered, buffers, .. } = self;
        act(coalescer, &mut |delivery: Delivery<'_, _>| keep(delivery, delivered, buffers))
    }

    /// Returns all deliveries after these checks: no packet or buffer was lost; every superframe equals the one that
    /// the oracle forms from the same packets; and segmentation restores exactly the pushed frames, in order within
    /// each flow.
    ///
    /// # Panics
    /// Panics if any of these checks fails.
    #[must_use]
    #[track_caller]
    pub fn checked(self, frames: &[Vec<u8>]) -> Vec<Out> {
        let packets: u32 = self.delivered.iter().map(|out| out.packets).sum();
        assert_eq!(packets as usize, frames.len(), "packets are conserved");
        assert_eq!(self.buffers.len(), frames.len(), "every buffer is returned");
        assert_eq!(self.stats().packets_held(), 0);
        let cut: Vec<_> = self.delivered.iter().flat_map(checked_packets).collect();
        assert_conserved(frames, &cut);
        assert_order_within_flows(frames, &cut, Link::Ethernet);
        self.delivered
    }

    /// Returns the counters.
    #[must_use]
    pub fn stats(&self) -> &CoalesceStats {
        self.coalescer.stats()
    }

    /// Returns the time at which the next train must be delivered.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        self.coalescer.deadline()
    }
}

fn keep(delivery: Delivery<'_, Vec<u8>>, delivered: &mut Vec<Out>, buffers: &mut Vec<Vec<u8>>) {
    let mut bytes = Vec::new();
    delivery.copy_to(&mut bytes);
    assert_eq!(bytes.len(), delivery.len);
    delivered.push(Out {
        bytes,
        meta: delivery.meta,
        packets: delivery.packets,
        joined: delivery.is_joined(),
        closed: delivery.closed,
    });
    buffers.extend(delivery.into_parts().map(|part: Part<_>| part.buffer));
}

/// Sends frames through the `linux` profile in one poll.
#[must_use]
pub fn coalesce(frames: &[Vec<u8>]) -> Vec<Out> {
    coalesce_with(Profile::linux(), frames)
}

/// Sends frames through a profile in one poll, and returns the [checked](Engine::checked) deliveries.
#[must_use]
pub fn coalesce_with(profile: Profile, frames: &[Vec<u8>]) -> Vec<Out> {
    let mut engine = Engine::new(profile);
    for frame in frames {
        engine.push(frame);
    }
    engine.poll_end(0);
    engine.checked(frames)
}

/// Segments one delivered frame. If it is a superframe, checks that it equals the one that the oracle forms from the
/// segments.
fn checked_packets(out: &Out) -> Vec<Vec<u8>> {
    let packets = segment(out);
    assert_eq!(packets.len(), out.packets as usize);
    if out.joined {
        let gso = out.meta.gso.expect("a superframe has segmentation parameters");
        let (bytes, description) = join(&packets, Link::Ethernet);
        assert_eq!(out.bytes, bytes);
        assert_eq!(gso.size().map(usize::from), Some(description.gso_size));
        assert_eq!(usize::from(gso.segments), packets.len());
        assert_eq!(u32::from(gso.fixed_ids.bits()), description.fixed_ids);
        assert_eq!(gso.cwr == Cwr::Every, description.cwr_on_all);
    }
    packets
}

/// Segments a superframe; returns any other frame unchanged.
#[must_use]
pub fn segment(out: &Out) -> Vec<Vec<u8>> {
    segment_for(out, LinkType::Ethernet, Outgoing::default())
}

/// Segments a superframe for a device; returns any other frame unchanged.
#[must_use]
pub fn segment_for(out: &Out, link: LinkType, outgoing: Outgoing) -> Vec<Vec<u8>> {
    match cut(&[&out.bytes], &out.meta, link, outgoing) {
        Ok(packets) => packets.into_iter().map(|(bytes, _)| bytes).collect(),
        Err(NoSegments::NotSuperframe) => vec![out.bytes.clone()],
        Err(error) => panic!("{error}: {out:?}"),
    }
}

/// Segments the frame that consists of `slices` twice, with copied and with scattered payload, and checks that both
/// produce the same packets.
///
/// # Errors
/// Fails with the engine's reason for refusing to segment the frame.
pub fn cut(
    slices: &[&[u8]],
    meta: &Meta,
    link: LinkType,
    outgoing: Outgoing,
) -> Result<Vec<(Vec<u8>, Meta)>, NoSegments> {
    let mut copied = Segments::new(slices, meta, link, &PORTS, outgoing)?;
    let mut scattered = copied.clone();
    let mut packets = Vec::new();
    let mut buffer = vec![0xa5; copied.packet_len_max()];
    while let Some(segment) = copied.write_next(&mut buffer).expect("room for any packet") {
        packets.push((buffer[..segment.len()].to_vec(), segment.meta));
    }
    for packet in &packets {
        let mut headers = [0xa5; HEADER_BYTES_MAX];
        let mut payload = Vec::new();
        let segment = scattered
            .scatter_next(&mut headers, |slice| payload.extend_from_slice(slice))
            .expect("room for any header")
            .expect("as many packets as were copied");
        let bytes = [&headers[..segment.header_len], &payload].concat();
        assert_eq!(&(bytes, segment.meta), packet, "copied and scattered packets are the same");
    }
    assert_eq!(scattered.scatter_next(&mut [0; HEADER_BYTES_MAX], |_| ()), Ok(None));
    Ok(packets)
}

/// Returns the payload length of each delivered frame, whose headers are `header_len` bytes long.
#[must_use]
pub fn payloads(delivered: &[Out], header_len: usize) -> Vec<usize> {
    delivered.iter().map(|out| out.bytes.len() - header_len).collect()
}
