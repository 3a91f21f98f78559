//! Receive coalescing: packets join the train of their flow, and leave as one superframe.
//!
//! A packet is [examined](examine) alone first: what it is, whether its checksums hold, whether it can be in a train at
//! all. If so, the train of its flow is looked up and asked whether the packet obeys its laws. If it does not, the train
//! leaves, named by a [`reason`], and the packet starts the next. Within a flow nothing ever overtakes.

mod delivery;
mod examine;
mod pool;
pub mod profile;
pub mod reason;
#[cfg(test)]
mod tests;
mod train;

use grosso_wire::{LinkType, Ports, Stack, dissect};

pub use delivery::{Delivery, Sink};
pub use examine::HEADER_BYTES_MAX;
pub use pool::Part;
pub use profile::{BucketChoice, Limits, Profile, TableShape};

use crate::{
    bytes::u16_at,
    checksum::Checksum,
    coalesce::{
        delivery::Closing,
        examine::{Barrier, Candidate, Refused, examine},
        pool::{List, Pool},
        reason::{Close, NoMerge, Pass},
        train::{Train, Trains, ending},
    },
    flow::{FlowHasher, Found, Table},
    frame::Frame,
    meta::{Cut, Cwr, Gso, Meta},
    stats::CoalesceStats,
    template::{
        compare::ON_LAST_ONLY,
        render::{Checksums, Place, Template},
    },
};

/// What became of a pushed packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It starts a train.
    Held,
    /// It joined the train of its flow, which may have left with it.
    Joined,
    /// It did not join the held train of its flow. The train left; the packet starts the next, or left behind it.
    Refused(NoMerge),
    /// It can be in no train and left as it came.
    Passed(Pass),
}

/// Joins packets into superframes, one link at a time.
///
/// Time is an argument: nanoseconds of any clock that does not go back. See [`Profile`] for the rules and
/// [`Limits`] for the bounds.
#[derive(Debug)]
pub struct Coalescer<B> {
    profile: Profile,
    link: LinkType,
    ports: Ports,
    hasher: FlowHasher,
    table: Table,
    trains: Trains<B>,
    pool: Pool<B>,
    stats: CoalesceStats,
    header: [u8; HEADER_BYTES_MAX],
}

impl<B: AsRef<[u8]>> Coalescer<B> {
    /// A coalescer for frames of one link type. `seed` keys the flow hash and should be random, so that nobody can
    /// choose packets that share a bucket (P50).
    #[must_use]
    pub fn new(profile: Profile, link: LinkType, ports: Ports, seed: u64) -> Self {
        Self {
            link,
            ports,
            hasher: FlowHasher::new(seed),
            table: Table::new(profile.table),
            trains: Trains::new(profile.limits.flows),
            pool: Pool::new(profile.limits.parts),
            stats: CoalesceStats::default(),
            header: [0; HEADER_BYTES_MAX],
            profile,
        }
    }

    /// Takes one packet, and delivers what it completes.
    #[inline]
    pub fn push(&mut self, frame: Frame<B>, now_ns: u64, sink: &mut impl Sink<B>) -> Verdict {
        let packet = frame.buffer.as_ref();
        let stack = dissect(packet, self.link, &self.ports);
        let examined = examine(packet, &stack, &frame.meta, &self.profile, &self.hasher);
        let packets = match &examined {
            Ok(candidate) => u32::from(candidate.packets),
            Err(_) => frame.meta.gso.map_or(1, |gso| u32::from(gso.segments.max(1))),
        };
        self.stats.count_in(packet.len(), packets);
        match examined {
            Ok(candidate) => self.place(frame, &stack, &candidate, now_ns, sink),
            Err(refused) => self.pass(frame, packets, refused, sink),
        }
    }

    /// Ends a poll: delivers every train, or those held long enough when the profile holds across polls.
    pub fn poll_end(&mut self, now_ns: u64, sink: &mut impl Sink<B>) {
        if self.profile.limits.hold_ns == 0 {
            self.flush(Close::PollEnd, sink);
        } else {
            self.expire(now_ns, sink);
        }
    }

    /// Delivers the trains whose time is over, oldest first.
    pub fn expire(&mut self, now_ns: u64, sink: &mut impl Sink<B>) {
        while let Some((slot, created_ns)) = self.trains.oldest() {
            if now_ns.saturating_sub(created_ns) < self.profile.limits.hold_ns {
                return;
            }
            self.close(slot, Close::HoldTime, sink);
        }
    }

    /// Delivers everything held, oldest train first.
    pub fn finish(&mut self, sink: &mut impl Sink<B>) {
        self.flush(Close::PollEnd, sink);
    }

    /// When [`Self::expire`] has something to do next, in the caller's nanoseconds; `None` when nothing is held.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        let (_, created_ns) = self.trains.oldest()?;
        Some(created_ns.saturating_add(self.profile.limits.hold_ns))
    }

    /// What it did so far.
    #[must_use]
    pub fn stats(&self) -> &CoalesceStats {
        &self.stats
    }

    /// Its rules and limits.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Puts a packet that may be in a train where it belongs.
    #[inline]
    fn place(
        &mut self,
        frame: Frame<B>,
        stack: &Stack,
        candidate: &Candidate,
        now_ns: u64,
        sink: &mut impl Sink<B>,
    ) -> Verdict {
        let Found::Slot(slot) = self.table.find(candidate.flow, frame.meta.hash) else {
            return self.hold(frame, stack, candidate, now_ns, sink);
        };
        let segments_max = self.segments_max(candidate.is_tcp);
        let packet = frame.buffer.as_ref();
        let admitted = match self.trains.train(slot) {
            Some(train) => train.admits(packet, candidate, &frame.meta, segments_max),
            None => Err(NoMerge::HeaderStack),
        };
        match admitted {
            Ok(fixed_ids) => {
                let flags = flags(packet, candidate);
                let part = Part::new(frame.buffer, candidate.header_len..candidate.header_len + candidate.payload_len);
                let Some(train) = self.trains.train_mut(slot) else { return Verdict::Joined };
                if let Err(part) = self.pool.push(&mut train.rest, part) {
                    self.close(slot, Close::PartsFull, sink);
                    let frame = Frame { buffer: part.buffer, meta: frame.meta };
                    return self.hold(frame, stack, candidate, now_ns, sink);
                }
                train.fixed_ids = fixed_ids;
                train.packets += candidate.packets;
                train.payload_len += candidate.payload_len;
                train.ending_flags = flags & ON_LAST_ONLY;
                let is_short = candidate.size < train.size || candidate.short_tail;
                let is_full = !candidate.is_tcp && train.packets >= segments_max;
                let reason = ending(flags)
                    .or_else(|| is_short.then_some(Close::ShortSegment))
                    .or_else(|| is_full.then_some(Close::SegmentLimit));
                if let Some(reason) = reason {
                    self.close(slot, reason, sink);
                }
                Verdict::Joined
            }
            Err(refusal) => {
                self.stats.refused[refusal.index()] += 1;
                self.close(slot, Close::NoMerge, sink);
                self.hold(frame, stack, candidate, now_ns, sink);
                Verdict::Refused(refusal)
            }
        }
    }

    /// Starts a train with a packet, unless nothing may follow it (rule G37).
    #[inline]
    fn hold(
        &mut self,
        frame: Frame<B>,
        stack: &Stack,
        candidate: &Candidate,
        now_ns: u64,
        sink: &mut impl Sink<B>,
    ) -> Verdict {
        let ends = ending(flags(frame.buffer.as_ref(), candidate));
        if ends.is_some() || candidate.short_tail {
            let reason = match ends {
                Some(Close::Finish) => Pass::TcpFinish,
                Some(_) => Pass::TcpPush,
                None => Pass::Superframe,
            };
            self.stats.passed[reason.index()] += 1;
            let meta = verified(frame.meta, candidate.partial, candidate.verified_levels);
            self.deliver_single(frame.buffer, meta, u32::from(candidate.packets), Close::Never, sink);
            return Verdict::Passed(reason);
        }
        if self.trains.is_full() {
            if let Some((oldest, _)) = self.trains.oldest() {
                self.close(oldest, Close::TableFull, sink);
            }
        }
        let device_hash = frame.meta.hash;
        let mut found = self.table.find(candidate.flow, device_hash);
        if let Found::Full(bucket) = found {
            if let Some(oldest) = self.trains.oldest_of(&self.table.slots(bucket)) {
                self.close(oldest, Close::BucketFull, sink);
            }
            found = self.table.find(candidate.flow, device_hash);
        }
        let Found::Free(place) = found else {
            self.deliver_single(frame.buffer, frame.meta, u32::from(candidate.packets), Close::BucketFull, sink);
            return Verdict::Held;
        };
        let whole = 0..frame.buffer.as_ref().len();
        let first = Part::new(frame.buffer, whole);
        let train = Train::start(first, frame.meta, *stack, candidate, place, now_ns);
        let slot = self.trains.insert(train);
        self.table.insert(place, candidate.flow, slot);
        Verdict::Held
    }

    /// Lets a packet through as it came, behind every held train that it must not overtake (rule G75).
    #[cold]
    fn pass(
        &mut self,
        frame: Frame<B>,
        packets: u32,
        refused: Refused,
        sink: &mut impl Sink<B>,
    ) -> Verdict {
        match refused.barrier {
            Barrier::None => {}
            Barrier::Flow(flow) => {
                if let Found::Slot(slot) = self.table.find(flow, frame.meta.hash) {
                    self.close(slot, Close::Barrier, sink);
                }
            }
            Barrier::Pair(pair) => {
                while let Some(slot) = self.trains.between(pair) {
                    self.close(slot, Close::Barrier, sink);
                }
            }
        }
        self.stats.passed[refused.reason.index()] += 1;
        self.deliver_single(frame.buffer, frame.meta, packets, Close::Never, sink);
        Verdict::Passed(refused.reason)
    }

    fn flush(&mut self, reason: Close, sink: &mut impl Sink<B>) {
        while let Some((slot, _)) = self.trains.oldest() {
            self.close(slot, reason, sink);
        }
    }

    /// Delivers a train: a packet alone as it came, several as a superframe.
    #[inline]
    fn close(&mut self, slot: u32, reason: Close, sink: &mut impl Sink<B>) {
        let Some(train) = self.trains.remove(slot) else { return };
        self.table.remove(train.place);
        self.stats.closed[reason.index()] += 1;
        if train.rest == List::EMPTY {
            let meta = verified(train.meta, train.partial, train.verified_levels);
            self.deliver_single(train.first.buffer, meta, u32::from(train.packets), reason, sink);
        } else {
            self.deliver_train(train, reason, sink);
        }
    }

    #[inline]
    fn deliver_single(
        &mut self,
        buffer: B,
        meta: Meta,
        packets: u32,
        closed: Close,
        sink: &mut impl Sink<B>,
    ) {
        let len = buffer.as_ref().len();
        self.stats.count_out(len, packets, false);
        let part = Part::new(buffer, 0..len);
        sink.deliver(Delivery::single(part, meta, packets, closed, &mut self.pool));
    }

    /// Writes the headers of a superframe: the template with its laws applied to the train as a whole (rules G50 to
    /// G52).
    fn deliver_train(&mut self, train: Train<B>, closed: Close, sink: &mut impl Sink<B>) {
        let first = train.first.buffer.as_ref();
        let template_header = first.get(..train.header_len).unwrap_or_default();
        let header = &mut self.header[..template_header.len()];
        header.copy_from_slice(template_header);
        let flags_at = train.transport + 13;
        let carries_cwr = train.is_tcp && first.get(flags_at).is_some_and(|flags| flags & 0x80 != 0);
        let cwr = if carries_cwr { Cwr::Every } else { Cwr::First };
        let template = Template {
            stack: &train.stack,
            header: template_header,
            fixed_ids: train.fixed_ids,
            cwr,
            remote_checksum: train.remote_checksum,
        };
        let place = Place { index: 0, before: 0, payload: train.payload_len, last: true };
        if train.is_tcp {
            if let Some(flags) = header.get_mut(flags_at) {
                *flags |= train.ending_flags;
            }
        }
        template.render(place, Checksums::Seeds, header);
        let checksum_offset = if train.is_tcp { 16 } else { 6 };
        let meta = Meta {
            checksum: Checksum::Partial { start: train.transport as u16, offset: checksum_offset },
            gso: core::num::NonZeroU16::new(train.size).map(|size| Gso {
                cut: Cut::Every(size),
                segments: train.packets,
                fixed_ids: train.fixed_ids,
                cwr,
                partial_members: train.partial,
                untrusted: false,
            }),
            ..train.meta
        };
        let len = train.header_len + train.payload_len;
        let packets = u32::from(train.packets);
        self.stats.count_out(len, packets, true);
        let payload_end = train.first.range().end;
        let first = Part::new(train.first.buffer, train.header_len..payload_end);
        let closing = Closing { meta, packets, len, closed };
        sink.deliver(Delivery::train(header, first, train.rest, &mut self.pool, closing));
    }

    #[inline]
    fn segments_max(&self, is_tcp: bool) -> u16 {
        if is_tcp { self.profile.limits.tcp_segments } else { self.profile.limits.udp_segments }
    }
}

/// The low byte of the TCP flags; zero for UDP.
#[inline]
fn flags(packet: &[u8], candidate: &Candidate) -> u8 {
    if candidate.is_tcp { u16_at(packet, candidate.transport + 12) as u8 } else { 0 }
}

/// A packet whose checksums were verified here says so (rule G53).
#[inline]
fn verified(meta: Meta, partial: bool, levels: u8) -> Meta {
    if partial { meta } else { Meta { checksum: Checksum::Unnecessary { levels }, ..meta } }
}
