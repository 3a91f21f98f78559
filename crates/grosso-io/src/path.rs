//! A data path between two ports, which does only the work that the features of the ports require.
//!
//! Packets sent to a port that accepts superframes are coalesced. If the port does not accept superframes, they are
//! segmented and checksums are completed, as late as possible. Frames that both ports can handle pass unchanged.

use grosso::{
    CoalesceOptions, Delivery, Frame, Profile, Sink,
    coalesce::RoundTrips,
    expand::Expander,
    features::{Device, Features},
    stats::CoalesceStats,
};
use grosso_wire::{LinkType, Ports};

pub use crate::counts::{DirectionStats, Protocol, RxCsum, Superframes, WireSize};
use crate::{
    buffer::PortBuffer,
    coalescer::PortCoalescer,
    egress::Egress,
    port::{Port, PortError, Transmit, Transmitted},
};

/// Options of one direction of a data path.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathOptions {
    /// Whether to coalesce packets if the transmit port accepts superframes.
    pub coalesce: bool,
    /// Rules and limits of coalescing.
    pub profile: Profile,
    /// UDP ports that identify tunnels.
    pub ports: Ports,
    /// Whether to expand the acknowledgment of a train that the other direction delivered into the acknowledgments that
    /// the host would have sent for the separate packets. Set this for the direction from a host that terminates TCP.
    pub expand_acknowledgments: bool,
    /// Maximum number of frames per poll, like the budget of NAPI.
    pub budget_frames: usize,
    /// Key of the flow hash. It should be random.
    pub seed: u64,
}

impl PathOptions {
    /// Creates options for coalescing with the `linux` profile and a budget of 64 frames per poll.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            coalesce: true,
            profile: Profile::linux(),
            ports: Ports::ASSIGNED,
            expand_acknowledgments: false,
            budget_frames: 64,
            seed,
        }
    }
}

/// State that the two directions between a pair of ports share. The default is empty.
#[derive(Debug, Default)]
pub struct Shared {
    /// Measurement of round-trip times from the frames of both directions.
    round_trips: Option<Box<RoundTrips>>,
    /// Record of the trains that one direction delivers. The other direction uses it to expand acknowledgments.
    expander: Option<Box<Expander>>,
}

impl Shared {
    /// Creates the state that both directions of a path share. `seed` is the key of the flow hashes.
    #[must_use]
    pub fn of(directions: [&Direction; 2], seed: u64) -> Self {
        let [first, _] = directions;
        let round_trips = directions.iter().any(|direction| direction.wants_round_trips());
        let expander = directions.iter().any(|direction| direction.options.expand_acknowledgments);
        Self {
            round_trips: round_trips.then(|| Box::new(RoundTrips::new(seed))),
            expander: expander
                .then(|| Box::new(Expander::new(first.link, first.options.ports, seed))),
        }
    }
}

/// One direction of a data path, from one port to another. The [crate documentation](crate) has an example.
#[derive(Debug)]
pub struct Direction {
    options: PathOptions,
    link: LinkType,
    device: Device,
    coalescer: Option<PortCoalescer>,
    done: Done,
    egress: Egress,
    /// Whether the port accepted frames that it could not send yet.
    is_blocked: bool,
}

impl Direction {
    /// Creates a direction for frames with the link type `link` to a port with the features of `device`.
    #[must_use]
    pub fn new(options: PathOptions, link: LinkType, device: Device) -> Self {
        let takes_superframes = device.features.contains(Features::TCP_SEGMENTATION)
            || device.features.contains(Features::TCP6_SEGMENTATION);
        let coalescer = (options.coalesce && takes_superframes).then(|| {
            let mut profile = options.profile.clone();
            profile.udp &= device.features.contains(Features::UDP_SEGMENTATION);
            PortCoalescer::new(
                CoalesceOptions::new(link, options.seed).profile(profile).ports(options.ports),
            )
        });
        Self {
            egress: Egress::new(link, device, options.ports),
            options,
            link,
            device,
            coalescer,
            done: Done::default(),
            is_blocked: false,
        }
    }

    /// Moves one batch and returns the number of frames received. Receives nothing while the transmit port has no room
    /// for queued frames.
    ///
    /// # Errors
    /// Returns an error if a port has failed.
    pub fn poll(
        &mut self,
        from: &mut dyn Port,
        to: &mut dyn Transmit,
        now_ns: u64,
    ) -> Result<usize, PortError> {
        self.poll_shared(from, to, now_ns, &mut Shared::default())
    }

    /// Works like [`Self::poll`], and also shares state with the opposite direction, which must be polled with the same
    /// `shared`.
    ///
    /// # Errors
    /// Returns an error if a port has failed.
    pub fn poll_shared(
        &mut self,
        from: &mut dyn Port,
        to: &mut dyn Transmit,
        now_ns: u64,
        shared: &mut Shared,
    ) -> Result<usize, PortError> {
        if !self.egress.drain(to)? {
            self.with_coalescer(to, shared, |coalescer, sink| coalescer.expire(now_ns, sink))?;
            self.hand_back(from, to)?;
            return Ok(0);
        }
        let (mut received, mut few) = (0, FEW_FRAMES);
        while received < self.options.budget_frames {
            let (most, before) =
                (few.min(self.options.budget_frames - received), self.egress.stats.rx_bytes);
            let count = self.take_some(from, to, now_ns, most, shared)?;
            received += count;
            if count < most {
                break;
            }
            if self.egress.stats.rx_bytes - before < FEW_BYTES {
                few = self.options.budget_frames;
            }
        }
        let is_full = received >= self.options.budget_frames;
        self.with_coalescer(to, shared, |coalescer, sink| match is_full {
            true => coalescer.poll_end_full(now_ns, sink),
            false => coalescer.poll_end(now_ns, sink),
        })?;
        self.hand_back(from, to)?;
        Ok(received)
    }

    /// Receives at most `most` frames. Each frame is processed while its headers are in the cache, and the memory of a
    /// frame that has been sent can be reused for the following frames.
    fn take_some(
        &mut self,
        from: &mut dyn Port,
        to: &mut dyn Transmit,
        now_ns: u64,
        most: usize,
        shared: &mut Shared,
    ) -> Result<usize, PortError> {
        let mut failed = None;
        let received = from.receive(now_ns, most, &mut |frame| {
            self.take(frame, to, now_ns, shared, &mut failed);
        })?;
        self.egress.stats.rx_frames += received as u64;
        from.recycle_all(&mut self.done.wanted);
        failed.map_or(Ok(received), Err)
    }

    /// Merges a received frame into a train, or sends it on, unless the transmit port has failed.
    fn take(
        &mut self,
        frame: Frame<PortBuffer>,
        to: &mut dyn Transmit,
        now_ns: u64,
        shared: &mut Shared,
        failed: &mut Option<PortError>,
    ) {
        if shared.round_trips.is_some() {
            self.learn_round_trip(&frame, now_ns, shared);
        }
        if shared.expander.is_some() && failed.is_none() {
            self.expand(&frame, to, shared).unwrap_or_else(|error| *failed = Some(error));
        }
        let Self { egress, done, coalescer, .. } = self;
        let expander = &mut shared.expander;
        match coalescer {
            _ if failed.is_some() => done.push(frame.buffer),
            Some(coalescer) => {
                egress.count_received(frame.buffer.as_ref(), &frame.meta);
                let mut sending = PortSink { egress, to, done, expander, failed };
                coalescer.push(frame, now_ns, &mut sending);
            }
            None => {
                let sent = egress.forward(frame.buffer.as_ref(), &frame.meta, to);
                sent.unwrap_or_else(|error| *failed = Some(error));
                done.push(frame.buffer);
            }
        }
    }

    /// Returns whether the coalescer uses measured round-trip times.
    #[must_use]
    pub fn wants_round_trips(&self) -> bool {
        self.coalescer.as_ref().is_some_and(|coalescer| coalescer.profile().wants_round_trips())
    }

    /// Sends queued frames while the port has room, without receiving.
    ///
    /// # Errors
    /// Returns an error if a port has failed.
    pub fn drain(&mut self, from: &mut dyn Port, to: &mut dyn Transmit) -> Result<(), PortError> {
        self.egress.drain(to)?;
        self.hand_back(from, to)
    }

    /// Delivers the trains whose hold time has expired.
    ///
    /// # Errors
    /// Returns an error if a port has failed.
    pub fn expire(
        &mut self,
        from: &mut dyn Port,
        to: &mut dyn Transmit,
        now_ns: u64,
    ) -> Result<(), PortError> {
        let shared = &mut Shared::default();
        self.with_coalescer(to, shared, |coalescer, sink| coalescer.expire(now_ns, sink))?;
        self.hand_back(from, to)
    }

    /// Delivers all held trains.
    ///
    /// # Errors
    ///
    /// Returns an error if a port has failed.
    pub fn finish(&mut self, from: &mut dyn Port, to: &mut dyn Transmit) -> Result<(), PortError> {
        let shared = &mut Shared::default();
        self.with_coalescer(to, shared, |coalescer, sink| coalescer.finish(sink))?;
        self.hand_back(from, to)
    }

    /// Returns the deadline of the next held train in the caller's nanoseconds, or `None` if no train is held.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        self.coalescer.as_ref()?.deadline()
    }

    /// Returns whether frames are queued for the transmit port.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.is_blocked || self.egress.has_waiting()
    }

    /// Returns whether receiving is suspended, because earlier frames are still queued.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        self.egress.has_waiting()
    }

    /// Returns the counters of this direction.
    #[must_use]
    pub fn stats(&self) -> &DirectionStats {
        &self.egress.stats
    }

    /// Returns the counters of the coalescer, or `None` if the transmit port does not accept superframes.
    #[must_use]
    pub fn coalesce_stats(&self) -> Option<&CoalesceStats> {
        self.coalescer.as_ref().map(PortCoalescer::stats)
    }

    /// Returns the number of held trains, or `None` if the transmit port does not accept superframes.
    #[must_use]
    pub fn trains_held(&self) -> Option<usize> {
        self.coalescer.as_ref().map(PortCoalescer::trains_held)
    }

    /// Returns the link type of the frames and the features of the transmit port.
    #[must_use]
    pub fn towards(&self) -> (LinkType, Device) {
        (self.link, self.device)
    }

    /// Passes a measured round-trip time to the coalescer.
    #[inline(never)]
    fn learn_round_trip(&mut self, frame: &Frame<PortBuffer>, now_ns: u64, shared: &mut Shared) {
        let Some(seen) = &mut shared.round_trips else { return };
        let Self { coalescer, link, options, .. } = self;
        let packet = frame.buffer.as_ref();
        let round_trip_ns = seen.observe(packet, *link, &options.ports, now_ns);
        if let (Some(round_trip_ns), Some(coalescer)) = (round_trip_ns, coalescer) {
            coalescer.learn_round_trip(packet, round_trip_ns, now_ns);
        }
    }

    /// Sends the acknowledgments that must precede `frame` if `frame` is an acknowledgment to be expanded.
    #[inline(never)]
    fn expand(
        &mut self,
        frame: &Frame<PortBuffer>,
        to: &mut dyn Transmit,
        shared: &mut Shared,
    ) -> Result<(), PortError> {
        let Self { egress, options, .. } = self;
        let Some(expander) = shared.expander.as_mut().filter(|_| options.expand_acknowledgments)
        else {
            return Ok(());
        };
        let expansion = expander.expand(frame).and_then(|result| egress.count_expansion(result));
        let Some(expansion) = expansion else { return Ok(()) };
        // Held packets of the same connection are sent first, so that no packet is overtaken.
        let packet = frame.buffer.as_ref();
        self.with_coalescer(to, shared, |coalescer, sink| {
            coalescer.flush_before(packet, frame.meta.hash, sink);
        })?;
        self.egress.send_copies(&expansion, to)
    }

    fn with_coalescer(
        &mut self,
        to: &mut dyn Transmit,
        shared: &mut Shared,
        act: impl FnOnce(&mut PortCoalescer, &mut dyn Sink<PortBuffer>),
    ) -> Result<(), PortError> {
        let Self { coalescer: Some(coalescer), egress, done, .. } = self else { return Ok(()) };
        let (mut failed, expander) = (None, &mut shared.expander);
        act(coalescer, &mut PortSink { egress, to, done, expander, failed: &mut failed });
        failed.map_or(Ok(()), Err)
    }

    fn hand_back(&mut self, from: &mut dyn Port, to: &mut dyn Transmit) -> Result<(), PortError> {
        from.recycle_all(&mut self.done.wanted);
        self.egress.drain_outdated(to)?;
        // Frames that the port could not send yet remain in the port until the next flush.
        self.is_blocked = to.flush()? == Transmitted::NoRoom;
        Ok(())
    }
}

/// Number of superframes received at once. This many fit in the L2 cache, and copies of them reuse a few buffers.
const FEW_FRAMES: usize = 8;
/// Total length in bytes of [`FEW_FRAMES`] frames above which they count as superframes.
const FEW_BYTES: u64 = 128 << 10;

/// Buffers that have been processed.
#[derive(Debug, Default)]
struct Done {
    /// Buffers to return to the port that they came from.
    wanted: Vec<PortBuffer>,
}

impl Done {
    #[inline]
    fn push(&mut self, buffer: PortBuffer) {
        if !buffer.returns_when_dropped() {
            self.wanted.push(buffer);
        }
    }
}

/// Sink that sends the coalescer's deliveries, and keeps an error until it can be returned.
struct PortSink<'a> {
    egress: &'a mut Egress,
    to: &'a mut dyn Transmit,
    done: &'a mut Done,
    expander: &'a mut Option<Box<Expander>>,
    failed: &'a mut Option<PortError>,
}

impl Sink<PortBuffer> for PortSink<'_> {
    fn deliver(&mut self, delivery: Delivery<'_, PortBuffer>) {
        let Self { egress, to, done, expander, failed } = self;
        if let Some(expander) = expander {
            expander.note(&delivery);
        }
        egress
            .deliver(delivery, *to, |buffer| done.push(buffer))
            .unwrap_or_else(|error| **failed = Some(error));
    }

    fn discard(&mut self, buffer: PortBuffer) {
        self.done.push(buffer);
    }
}
