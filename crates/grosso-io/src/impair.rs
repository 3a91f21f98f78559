//! A port that receives its frames over an impaired link. The link can delay, lose, reorder, duplicate and corrupt
//! frames, add jitter, and limit the rate. A seed determines all random decisions.
//!
//! The module is used instead of netem because many kernels lack netem, and because a failed test must be reproducible:
//! the same seed and the same frames at the same times lead to the same impairments.

use std::{
    collections::{BinaryHeap, VecDeque},
    str::FromStr,
    time::Duration,
};

use grosso::{
    Frame, Meta,
    checksum::{self, Checksum},
    segment::{Outgoing, Segments},
};
use grosso_wire::{LinkType, Ports};

use crate::{
    buffer::PortBuffer,
    delegate_port,
    port::{Port, PortCounter, PortError},
};

/// Impairments applied to the frames received over a link.
///
/// ```
/// use grosso_io::impair::Impairment;
///
/// let impairment: Impairment = "delay 5ms loss 0.1% seed 7".parse()?;
/// assert_eq!(impairment.delay.as_millis(), 5);
/// # Ok::<(), grosso_io::impair::BadImpairment>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Impairment {
    /// Delay of each frame.
    pub delay: Duration,
    /// Maximum deviation from the delay in either direction, uniformly distributed.
    pub jitter: Duration,
    /// Additional delay of every second frame, as if frames alternated between two paths of different length.
    pub skew: Duration,
    /// Rate in bits per second; `None` means unlimited.
    pub rate_bits: Option<u64>,
    /// Fraction of frames lost, 0 to 1.
    pub loss: f64,
    /// Fraction of frames that skip the delay and therefore overtake earlier frames, 0 to 1.
    pub reorder: f64,
    /// Fraction of frames that arrive twice, 0 to 1.
    pub duplicate: f64,
    /// Fraction of frames in which one bit is flipped, 0 to 1. A superframe is segmented, and the bit is flipped in one
    /// of its packets.
    pub corrupt: f64,
    /// Maximum number of frames on the link; further frames are lost, as if a queue were full.
    pub limit_frames: usize,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Default for Impairment {
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            skew: Duration::ZERO,
            rate_bits: None,
            loss: 0.0,
            reorder: 0.0,
            duplicate: 0.0,
            corrupt: 0.0,
            limit_frames: 10_000,
            seed: 1,
        }
    }
}

/// Error returned if a string is not a valid [`Impairment`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} in \"{text}\"; example: delay 5ms jitter 1ms loss 0.1% reorder 0.5% seed 7")]
pub struct BadImpairment {
    what: String,
    text: String,
}

impl FromStr for Impairment {
    type Err = BadImpairment;

    /// Parses pairs of a keyword and a value, for example `delay 5ms jitter 1ms skew 40us rate 10G loss 0.1% reorder
    /// 0.5% duplicate 1% corrupt 0.01% limit 1000 seed 7`.
    fn from_str(text: &str) -> Result<Self, BadImpairment> {
        let bad = |what: String| BadImpairment { what, text: text.to_owned() };
        let mut impairment = Self::default();
        let mut words = text.split_whitespace();
        while let Some(word) = words.next() {
            let value = words.next().ok_or_else(|| bad(format!("{word} needs a value")))?;
            let parsed = match word {
                "delay" => duration(value).map(|delay| impairment.delay = delay),
                "jitter" => duration(value).map(|jitter| impairment.jitter = jitter),
                "skew" => duration(value).map(|skew| impairment.skew = skew),
                "rate" => rate(value).map(|rate| impairment.rate_bits = Some(rate)),
                "loss" => share(value).map(|share| impairment.loss = share),
                "reorder" => share(value).map(|share| impairment.reorder = share),
                "duplicate" => share(value).map(|share| impairment.duplicate = share),
                "corrupt" => share(value).map(|share| impairment.corrupt = share),
                "limit" => value.parse().ok().map(|limit| impairment.limit_frames = limit),
                "seed" => value.parse().ok().map(|seed| impairment.seed = seed),
                _ => return Err(bad(format!("unknown keyword \"{word}\""))),
            };
            parsed.ok_or_else(|| bad(format!("invalid {word} \"{value}\"")))?;
        }
        Ok(impairment)
    }
}

fn duration(text: &str) -> Option<Duration> {
    let units = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let (number, unit) =
        units.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)))?;
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * unit).ok()
}

fn rate(text: &str) -> Option<u64> {
    let units = [("k", 1e3), ("M", 1e6), ("G", 1e9)];
    let found = units.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)));
    let (number, unit) = found.unwrap_or((text, 1.0));
    let bits = number.parse::<f64>().ok()? * unit;
    (bits >= 1.0).then_some(bits as u64)
}

fn share(text: &str) -> Option<f64> {
    let share = text.strip_suffix('%')?.parse::<f64>().ok()? / 100.0;
    (0.0..=1.0).contains(&share).then_some(share)
}

/// Counters of the frames on an impaired link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImpairStats {
    /// Number of frames lost at random, including superframes selected for corruption that could not be segmented.
    pub lost: u64,
    /// Number of frames lost because the link held its maximum number of frames.
    pub overflowed: u64,
    /// Number of frames delivered before earlier frames.
    pub reordered: u64,
    /// Number of frames delivered twice.
    pub duplicated: u64,
    /// Number of frames delivered with a flipped bit.
    pub corrupted: u64,
}

impl ImpairStats {
    /// Returns every counter with its description.
    #[must_use]
    pub fn counters(&self) -> [(PortCounter, u64); 5] {
        let counter = |name, is_loss, sentence| PortCounter { name, is_loss, sentence };
        [
            (counter("wire_loss", true, "The impaired link dropped a frame at random."), self.lost),
            (
                counter("wire_full", true, "The queue of the impaired link was full."),
                self.overflowed,
            ),
            (
                counter("wire_reorder", false, "The impaired link reordered a frame."),
                self.reordered,
            ),
            (
                counter("wire_duplicate", false, "The impaired link duplicated a frame."),
                self.duplicated,
            ),
            (
                counter("wire_corrupt", false, "The impaired link flipped a bit of a frame."),
                self.corrupted,
            ),
        ]
    }
}

/// A port that receives its frames over an impaired link.
#[derive(Debug)]
pub struct Impair<P: Port> {
    port: P,
    impairment: Impairment,
    dice: fastrand::Rng,
    wire: BinaryHeap<OnWire>,
    /// Number of frames put on the wire so far. Frames with equal arrival times are delivered in the order of these
    /// numbers.
    count: u64,
    /// Whether the next frame takes the longer path.
    is_on_longer: bool,
    /// Time at which the wire is free for the next frame, in nanoseconds.
    free_ns: u64,
    arrived: VecDeque<Frame<PortBuffer>>,
    /// Whether the last call returned as many frames as requested, in which case the port may have more.
    more: bool,
    stats: ImpairStats,
}

/// A frame with its arrival time.
#[derive(Debug)]
struct OnWire {
    arrival_ns: u64,
    order: u64,
    frame: Frame<PortBuffer>,
}

impl PartialEq for OnWire {
    fn eq(&self, other: &Self) -> bool {
        (self.arrival_ns, self.order) == (other.arrival_ns, other.order)
    }
}

impl Eq for OnWire {}

impl PartialOrd for OnWire {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for OnWire {
    /// Orders the earliest arrival as the greatest, because a heap returns its greatest element
    /// first.
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        (other.arrival_ns, other.order).cmp(&(self.arrival_ns, self.order))
    }
}

impl<P: Port> Impair<P> {
    /// Puts a port behind an impaired link.
    #[must_use]
    pub fn new(port: P, impairment: Impairment) -> Self {
        Self {
            port,
            dice: fastrand::Rng::with_seed(impairment.seed),
            impairment,
            wire: BinaryHeap::new(),
            count: 0,
            is_on_longer: false,
            free_ns: 0,
            arrived: VecDeque::new(),
            more: false,
            stats: ImpairStats::default(),
        }
    }

    /// Returns the counters since creation.
    #[must_use]
    pub fn stats(&self) -> &ImpairStats {
        &self.stats
    }

    /// Returns the port behind the link.
    #[must_use]
    pub fn inner(&self) -> &P {
        &self.port
    }

    /// Returns mutable access to the port behind the link.
    pub fn inner_mut(&mut self) -> &mut P {
        &mut self.port
    }

    /// Applies the impairments to a frame that enters the wire. Every frame draws the same number of random numbers, so
    /// that changing one probability does not affect the others.
    fn enter(&mut self, frame: Frame<PortBuffer>, now_ns: u64) {
        let mut happens = |share: f64| self.dice.f64() < share;
        let lost = happens(self.impairment.loss);
        let duplicated = happens(self.impairment.duplicate);
        let corrupted = happens(self.impairment.corrupt);
        let reordered = happens(self.impairment.reorder);
        let (offset, bit) = (self.dice.f64(), self.dice.u64(..));
        if lost {
            self.stats.lost += 1;
            return self.port.recycle(frame.buffer);
        }
        if self.wire.len() >= self.impairment.limit_frames {
            self.stats.overflowed += 1;
            return self.port.recycle(frame.buffer);
        }
        let arrival_ns = self.arrival(now_ns, frame.buffer.as_ref().len(), offset, reordered);
        if duplicated {
            self.stats.duplicated += 1;
            let copy = frame.buffer.as_ref().to_vec();
            self.put(arrival_ns, Frame { buffer: PortBuffer::made_whole(copy), meta: frame.meta });
        }
        if corrupted && !frame.buffer.as_ref().is_empty() {
            let packets = on_the_wire(frame.buffer.as_ref(), &frame.meta, self.port.link());
            self.port.recycle(frame.buffer);
            return self.put_corrupted(arrival_ns, packets, bit);
        }
        self.put(arrival_ns, frame);
    }

    /// Puts packets on the wire, and flips a bit in one of them.
    fn put_corrupted(&mut self, arrival_ns: u64, packets: Vec<Frame<Vec<u8>>>, bit: u64) {
        if packets.is_empty() {
            self.stats.lost += 1;
            return;
        }
        self.stats.corrupted += 1;
        let hit = (bit >> 32) as usize % packets.len();
        for (i, Frame { mut buffer, mut meta }) in packets.into_iter().enumerate() {
            if i == hit && !buffer.is_empty() {
                let place = (bit / 8) as u32 as usize % buffer.len();
                buffer[place] ^= 1 << (bit % 8);
                // The checksum state that the port reported does not apply to the changed bytes.
                meta.checksum = Checksum::None;
            }
            self.put(arrival_ns, Frame { buffer: PortBuffer::made_whole(buffer), meta });
        }
    }

    fn arrival(&mut self, now_ns: u64, len: usize, offset: f64, reordered: bool) -> u64 {
        let start_ns = self.free_ns.max(now_ns);
        if let Some(rate) = self.impairment.rate_bits {
            let transmission = u128::from(len as u64 * 8) * 1_000_000_000 / u128::from(rate.max(1));
            self.free_ns = start_ns.saturating_add(u64::try_from(transmission).unwrap_or(u64::MAX));
        } else {
            self.free_ns = start_ns;
        }
        let skew = if self.is_on_longer { self.impairment.skew } else { Duration::ZERO };
        self.is_on_longer = !self.is_on_longer;
        if reordered {
            self.stats.reordered += 1;
            return self.free_ns;
        }
        let jitter = self.impairment.jitter.as_nanos() as f64 * (2.0 * offset - 1.0);
        let delay = self.impairment.delay.saturating_add(skew);
        let delay = (delay.as_nanos() as f64 + jitter).max(0.0);
        self.free_ns.saturating_add(delay as u64)
    }

    fn put(&mut self, arrival_ns: u64, frame: Frame<PortBuffer>) {
        self.wire.push(OnWire { arrival_ns, order: self.count, frame });
        self.count += 1;
    }
}

/// Returns the packets that a device would send for a frame, with complete checksums. The result is empty if the frame
/// cannot be segmented.
///
/// A bit flipped in a superframe, or in a packet with a partial checksum, would be flipped before the checksum is
/// computed. A later step would then compute a correct checksum over wrong bytes. For the same reason, `sch_netem.c`
/// segments the superframe and completes the checksum first.
fn on_the_wire(frame: &[u8], meta: &Meta, link: LinkType) -> Vec<Frame<Vec<u8>>> {
    if meta.gso.is_none() {
        let mut packet = Frame { buffer: frame.to_vec(), meta: *meta };
        if let Checksum::Partial { start, offset } = meta.checksum
            && checksum::complete(&mut packet.buffer, start, offset).is_ok()
        {
            packet.meta.checksum = Checksum::None;
        }
        return vec![packet];
    }
    let (slices, ports, complete) = ([frame], Ports::ASSIGNED, Outgoing::COMPLETE);
    let Ok(mut segments) = Segments::new(&slices, meta, link, &ports, complete) else {
        return Vec::new();
    };
    let mut buffer = vec![0; segments.packet_len_max()];
    let mut packets = Vec::new();
    while let Ok(Some(segment)) = segments.write_next(&mut buffer) {
        let packet = buffer.get(..segment.len()).unwrap_or_default();
        packets.push(Frame { buffer: packet.to_vec(), meta: segment.meta });
    }
    packets
}

impl<P: Port> Port for Impair<P> {
    delegate_port!(port: link, device, recycle, transmit, flush, descriptors, path_mtu);

    fn receive(
        &mut self,
        now_ns: u64,
        max: usize,
        each: &mut dyn FnMut(Frame<PortBuffer>),
    ) -> Result<usize, PortError> {
        let Self { port, arrived, .. } = self;
        let received = port.receive(now_ns, max, &mut |frame| arrived.push_back(frame))?;
        self.more = received == max;
        while let Some(frame) = self.arrived.pop_front() {
            self.enter(frame, now_ns);
        }
        let mut count = 0;
        while count < max && self.wire.peek().is_some_and(|next| next.arrival_ns <= now_ns) {
            let Some(next) = self.wire.pop() else { break };
            each(next.frame);
            count += 1;
        }
        Ok(count)
    }

    fn counters(&mut self, each: &mut dyn FnMut(PortCounter, u64)) {
        self.port.counters(each);
        self.stats.counters().into_iter().for_each(|(counter, value)| each(counter, value));
    }

    /// Returns 0 (immediately) while the port may have more frames, because its descriptor may not become readable
    /// again for them. Otherwise returns the next arrival or the port's own deadline, whichever is earlier.
    fn deadline(&self) -> Option<u64> {
        if self.more {
            return Some(0);
        }
        let arrival = self.wire.peek().map(|next| next.arrival_ns);
        arrival.into_iter().chain(self.port.deadline()).min()
    }

    fn is_finished(&self) -> bool {
        self.port.is_finished() && self.wire.is_empty()
    }
}

#[cfg(test)]
mod tests;
