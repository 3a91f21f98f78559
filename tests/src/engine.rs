//! The engine as a function from frames to frames, for tests.

use grosso::{
    Coalescer, Delivery, Frame, Meta, Profile, Verdict,
    coalesce::{Part, reason::Close},
    segment::{NoCut, Outgoing, Segments},
    stats::CoalesceStats,
};
use grosso_wire::{LinkType, Ports};

/// One delivered frame, copied out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Out {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// What the engine says about it.
    pub meta: Meta,
    /// Wire packets that it stands for.
    pub packets: u32,
    /// Whether packets were joined.
    pub joined: bool,
    /// Why it left.
    pub closed: Close,
}

/// A coalescer that keeps what it delivers.
pub struct Engine {
    coalescer: Coalescer<Vec<u8>>,
    /// What was delivered so far, in order.
    pub delivered: Vec<Out>,
    /// What became of each pushed frame.
    pub verdicts: Vec<Verdict>,
    /// The buffers that came back, in order.
    pub buffers: Vec<Vec<u8>>,
}

impl Engine {
    /// An engine for Ethernet frames with the assigned tunnel ports and seed 1.
    #[must_use]
    pub fn new(profile: Profile) -> Self {
        Self::with(profile, LinkType::Ethernet, Ports::ASSIGNED, 1)
    }

    /// An engine for any link type and seed.
    #[must_use]
    pub fn with(profile: Profile, link: LinkType, ports: Ports, seed: u64) -> Self {
        Self {
            coalescer: Coalescer::new(profile, link, ports, seed),
            delivered: Vec::new(),
            verdicts: Vec::new(),
            buffers: Vec::new(),
        }
    }

    /// Pushes a frame about which nothing is known, at time zero.
    pub fn push(&mut self, bytes: &[u8]) -> Verdict {
        self.push_frame(Frame::new(bytes.to_vec()), 0)
    }

    /// Pushes a frame.
    pub fn push_frame(&mut self, frame: Frame<Vec<u8>>, now_ns: u64) -> Verdict {
        let Self { coalescer, delivered, buffers, verdicts } = self;
        let verdict =
            coalescer.push(frame, now_ns, &mut |delivery: Delivery<'_, _>| keep(delivery, delivered, buffers));
        verdicts.push(verdict);
        verdict
    }

    /// Ends a poll.
    pub fn poll_end(&mut self, now_ns: u64) {
        let Self { coalescer, delivered, buffers, .. } = self;
        coalescer.poll_end(now_ns, &mut |delivery: Delivery<'_, _>| keep(delivery, delivered, buffers));
    }

    /// Delivers the trains whose time is over.
    pub fn expire(&mut self, now_ns: u64) {
        let Self { coalescer, delivered, buffers, .. } = self;
        coalescer.expire(now_ns, &mut |delivery: Delivery<'_, _>| keep(delivery, delivered, buffers));
    }

    /// Delivers everything held.
    pub fn finish(&mut self) {
        let Self { coalescer, delivered, buffers, .. } = self;
        coalescer.finish(&mut |delivery: Delivery<'_, _>| keep(delivery, delivered, buffers));
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> &CoalesceStats {
        self.coalescer.stats()
    }

    /// When the next train must leave.
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

/// One poll of frames through the `linux` profile.
#[must_use]
pub fn coalesce(frames: &[Vec<u8>]) -> Vec<Out> {
    coalesce_with(Profile::linux(), frames)
}

/// One poll of frames through a profile. Checks that no packet and no buffer was lost.
#[must_use]
pub fn coalesce_with(profile: Profile, frames: &[Vec<u8>]) -> Vec<Out> {
    let mut engine = Engine::new(profile);
    for frame in frames {
        engine.push(frame);
    }
    engine.poll_end(0);
    let packets: u32 = engine.delivered.iter().map(|out| out.packets).sum();
    assert_eq!(packets as usize, frames.len(), "packets are conserved");
    assert_eq!(engine.buffers.len(), frames.len(), "every buffer comes back");
    assert_eq!(engine.stats().packets_held(), 0);
    engine.delivered
}

/// Cuts one frame; a frame that is no superframe comes back as it is.
#[must_use]
pub fn segment(out: &Out) -> Vec<Vec<u8>> {
    segment_for(out, LinkType::Ethernet, Outgoing::default())
}

/// Cuts one frame for a device, in both ways, and checks that both give the same packets.
#[must_use]
pub fn segment_for(out: &Out, link: LinkType, outgoing: Outgoing) -> Vec<Vec<u8>> {
    let slices = [&out.bytes[..]];
    let plan = || Segments::new(&slices, &out.meta, link, &Ports::ASSIGNED, outgoing);
    let mut copied = match plan() {
        Ok(segments) => segments,
        Err(NoCut::NotSuperframe) => return vec![out.bytes.clone()],
        Err(error) => panic!("{error}: {out:?}"),
    };
    let mut packets = Vec::new();
    let mut buffer = vec![0xa5; copied.packet_len_max()];
    while let Some(segment) = copied.write_next(&mut buffer).unwrap() {
        packets.push(buffer[..segment.len()].to_vec());
    }
    let mut scattered = plan().unwrap();
    for packet in &packets {
        let mut headers = [0xa5; 512];
        let mut payload = Vec::new();
        let segment = scattered
            .scatter_next(&mut headers, |slice| payload.extend_from_slice(slice))
            .unwrap()
            .unwrap();
        let bytes = [&headers[..segment.header_len], &payload].concat();
        assert_eq!(&bytes, packet, "copied and scattered packets are the same");
    }
    assert_eq!(scattered.scatter_next(&mut [0; 512], |_| ()), Ok(None));
    packets
}

/// The payload bytes that each delivered frame carries behind `header_len` bytes of headers.
#[must_use]
pub fn payloads(delivered: &[Out], header_len: usize) -> Vec<usize> {
    delivered.iter().map(|out| out.bytes.len() - header_len).collect()
}
