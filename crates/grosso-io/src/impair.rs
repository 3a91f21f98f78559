//! A port behind an impaired link: delay, jitter, rate, loss, reordering, duplication and corruption, drawn from a
//! seed.
//!
//! Many kernels lack netem, and a failed test must be reproducible: the same seed and the same frames at the same times
//! give the same impairments.

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

/// Impairments of the frames received over a link.
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
    /// Additional delay of every other frame, as on the longer of two paths.
    pub skew: Duration,
    /// Rate in bits per second; `None` means unlimited.
    pub rate_bits: Option<u64>,
    /// Fraction of frames lost, 0 to 1.
    pub loss: f64,
    /// Fraction of frames that skip the delay and so overtake earlier frames, 0 to 1.
    pub reorder: f64,
    /// Fraction of frames that arrive twice, 0 to 1.
    pub duplicate: f64,
    /// Fraction of frames in which one bit is flipped, 0 to 1. A superframe is segmented, and the bit is flipped in one
    /// of its packets.
    pub corrupt: f64,
    /// Maximum number of frames on the link; further frames are lost, as from a full queue.
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

/// Error: the text is not a valid [`Impairment`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} in \"{text}\"; example: delay 5ms jitter 1ms loss 0.1% reorder 0.5% seed 7")]
pub struct BadImpairment {
    what: String,
    text: String,
}

impl FromStr for Impairment {
    type Err = BadImpairment;

    /// Parses pairs of keyword and value, for example `delay 5ms jitter 1ms skew 40us rate 10G loss 0.1% reorder 0.5%
    /// duplicate 1% corrupt 0.01% limit 1000 seed 7`.
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
            parsed.ok_or_else(|| bad(format!("{word} cannot be \"{value}\"")))?;
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
    /// Frames lost at random, including superframes selected for corruption that could not be segmented.
    pub lost: u64,
    /// Frames lost because the link held its maximum number of frames.
    pub overflowed: u64,
    /// Frames delivered before earlier ones.
    pub reordered: u64,
    /// Frames delivered twice.
    pub duplicated: u64,
    /// Frames delivered with a flipped bit.
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
                counter("wire_reorder", false, "The impaired link let a frame overtake others."),
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
    /// Number of frames put on the wire so far. Frames with equal arrival times leave in this order.
    count: u64,
    /// Whether the next frame takes the longer path.
    is_on_longer: bool,
    /// Time at which the wire is free for the next frame, in nanoseconds.
    free_ns: u64,
    arrived: VecDeque<Frame<PortBuffer>>,
    /// Whether the port may have more frames, because it returned as many as requested.
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

    /// Returns the port behind the link, for requests that need `&mut`.
    pub fn inner_mut(&mut self) -> &mut P {
        &mut self.port
    }

    /// Decides the fate of a frame that enters the wire. Every frame draws the same number of random numbers, so that
    /// changing one probability does not affect the others.
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

    /// Puts packets on the wire, one of them with a flipped bit.
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
                // The port's verdict no longer applies to the changed bytes.
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

/// Returns the packets that a device would send for a frame, with complete checksums; empty if the frame cannot be
/// segmented.
///
/// A bit flipped in a superframe, or in a packet with a partial checksum, would be flipped before
/// the checksum is computed, and a later step would compute a correct checksum over wrong bytes
/// (`sch_netem.c` segments and completes for the same reason).
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
    /// again for them; otherwise the next arrival or the port's own deadline.
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
mod tests {
    use std::time::Duration;

    use grosso::{
        Meta,
        checksum::Checksum,
        features::{Device, Features},
        meta::Gso,
    };
    use grosso_testkit::{
        Packet,
        oracle::{self, Description, Link},
    };
    use grosso_wire::LinkType;

    use super::{Impair, Impairment};
    use crate::{
        memory::{MemoryPort, wire},
        port::{Port, Transmitted},
    };

    /// Sends numbered frames, one per microsecond, and returns the arrivals with their times.
    fn pass(impairment: Impairment, count: u32) -> (Vec<(u64, Vec<u8>)>, Impair<MemoryPort>) {
        let (mut far, near) = wire(LinkType::Ethernet, Device::new(Features::NONE), 100_000);
        let mut near = Impair::new(near, impairment);
        let mut arrived = Vec::new();
        for now_us in 0..u64::from(count) + 100_000 {
            if now_us < u64::from(count) {
                let frame = (now_us as u32).to_be_bytes();
                assert_eq!(
                    far.transmit(&[&frame, &[0; 96]], &Meta::default()).unwrap(),
                    Transmitted::Taken
                );
            }
            let now_ns = now_us * 1000;
            if now_us >= u64::from(count) && near.deadline().is_none() {
                break;
            }
            near.receive(now_ns, usize::MAX, &mut |frame| {
                arrived.push((now_ns, frame.buffer.as_ref().to_vec()));
            })
            .unwrap();
        }
        (arrived, near)
    }

    fn number(frame: &[u8]) -> u32 {
        u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]])
    }

    #[test]
    fn a_perfect_wire_changes_nothing() {
        let (arrived, _) = pass(Impairment::default(), 1000);
        assert!(
            arrived
                .iter()
                .enumerate()
                .all(|(i, (at, f))| number(f) as usize == i && *at == i as u64 * 1000)
        );
        assert_eq!(arrived.len(), 1000);
    }

    #[test]
    fn the_same_seed_gives_the_same_wire_and_another_one_another() {
        let impairment = |seed: u64| -> Impairment {
            format!("delay 50us jitter 20us loss 2% reorder 3% duplicate 2% corrupt 2% seed {seed}")
                .parse()
                .unwrap()
        };
        assert_eq!(pass(impairment(7), 2000).0, pass(impairment(7), 2000).0);
        assert_ne!(pass(impairment(7), 2000).0, pass(impairment(8), 2000).0);
    }

    #[test]
    fn every_other_frame_takes_the_longer_path() {
        let (arrived, _) = pass("delay 5us skew 4us".parse().unwrap(), 6);
        let arrived: Vec<_> =
            arrived.iter().map(|(at_ns, frame)| (at_ns / 1000, number(frame))).collect();
        assert_eq!(arrived, [(5, 0), (7, 2), (9, 4), (10, 1), (12, 3), (14, 5)]);
    }

    #[test]
    fn every_fault_happens_as_often_as_it_should_and_is_counted() {
        let (arrived, wire) = pass("loss 5% duplicate 10%".parse().unwrap(), 20_000);
        let stats = wire.stats();
        assert!((800..1200).contains(&stats.lost), "{stats:?}");
        assert!((1700..2100).contains(&stats.duplicated), "{stats:?}");
        assert_eq!(arrived.len() as u64, 20_000 - stats.lost + stats.duplicated);
        let (arrived, wire) = pass("corrupt 10%".parse().unwrap(), 5_000);
        let changed = |(i, (_, frame)): (usize, &(u64, Vec<u8>))| {
            number(frame) as usize != i || frame[4..] != [0; 96]
        };
        let corrupted = arrived.iter().enumerate().filter(|entry| changed(*entry)).count();
        assert_eq!(corrupted as u64, wire.stats().corrupted);
        assert!((400..600).contains(&corrupted), "{corrupted}");
    }

    #[test]
    fn delay_and_rate_add_up() {
        let (arrived, _) = pass("delay 10us".parse().unwrap(), 10);
        assert!(arrived.iter().enumerate().all(|(i, (at, _))| *at == (i as u64 + 10) * 1000));
        // 100 bytes at 100 Mb/s take 8 us each, so the tenth frame leaves 80 us after the first arrived.
        let (arrived, _) = pass("rate 100M".parse().unwrap(), 10);
        assert_eq!(arrived.last().map(|(at, _)| *at), Some(80_000));
    }

    #[test]
    fn a_delay_without_end_and_more_keeps_what_comes() {
        for words in ["delay 1e19s skew 1e19s", "delay 1e19s jitter 1e19s rate 1"] {
            let (arrived, wire) = pass(words.parse().unwrap(), 20);
            assert_eq!((arrived.len(), wire.stats().lost), (0, 0), "{words}");
        }
    }

    #[test]
    fn reordered_frames_overtake_and_none_is_lost() {
        let (arrived, wire) = pass("delay 20us reorder 5%".parse().unwrap(), 2000);
        let mut numbers: Vec<_> = arrived.iter().map(|(_, frame)| number(frame)).collect();
        assert!(wire.stats().reordered > 50 && !numbers.is_sorted());
        numbers.sort_unstable();
        assert!(numbers.iter().enumerate().all(|(i, number)| *number as usize == i));
    }

    #[test]
    fn a_full_wire_loses_what_comes_and_counts_it() {
        let (arrived, wire) = pass("delay 1s limit 5".parse().unwrap(), 20);
        assert_eq!((arrived.len(), wire.stats().overflowed), (0, 15));
    }

    /// Checks that no wrong bytes arrive with a valid checksum, the one fault that a receiver cannot detect.
    #[test]
    fn what_is_corrupted_before_its_checksum_is_made_arrives_with_a_wrong_one() {
        let tcp = Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t).payload_len(5000);
        let (superframe, start, offset) = tcp.build_superframe();
        let (partial, ..) = tcp.build_partial();
        let checksum = Checksum::Partial { start: start as u16, offset: offset as u16 };
        let description = Description { gso_size: 1000, fixed_ids: 0, cwr_on_all: false };
        let cut = oracle::segment(&superframe, Link::Ethernet, description).unwrap();
        for (frame, gso, packets) in
            [(partial, None, vec![tcp.build()]), (superframe, Gso::every(1000), cut)]
        {
            for seed in 0..200 {
                let (mut far, near) = wire(LinkType::Ethernet, Device::new(Features::ALL), 10);
                let corrupt = Impairment { corrupt: 1.0, seed, ..Impairment::default() };
                let mut near = Impair::new(near, corrupt);
                let meta = Meta { checksum, gso, ..Meta::default() };
                assert_eq!(far.transmit(&[&frame], &meta).unwrap(), Transmitted::Taken);
                let mut arrived = Vec::new();
                near.receive(0, 10, &mut |frame| arrived.push(frame)).unwrap();
                assert!(arrived.iter().all(|frame| frame.meta == Meta::default()));
                assert_eq!((arrived.len(), near.stats().corrupted), (packets.len(), 1));
                let pairs = arrived.iter().map(|frame| frame.buffer.as_ref()).zip(&packets);
                let bits = |(found, right): (&[u8], &Vec<u8>)| {
                    assert_eq!(found.len(), right.len());
                    found.iter().zip(right).map(|(a, b)| (a ^ b).count_ones()).sum::<u32>()
                };
                assert_eq!(pairs.map(bits).sum::<u32>(), 1, "seed {seed}");
            }
        }
    }

    #[test]
    fn words_are_understood_or_named() {
        let parsed: Impairment =
            "delay 5ms jitter 1ms loss 0.1% rate 10G limit 7 seed 9".parse().unwrap();
        assert_eq!(parsed.delay, Duration::from_millis(5));
        assert_eq!(
            (parsed.rate_bits, parsed.limit_frames, parsed.seed),
            (Some(10_000_000_000), 7, 9)
        );
        assert!((parsed.loss - 0.001).abs() < 1e-12);
        for (text, what) in [
            ("delay", "delay needs a value"),
            ("delay 5", "delay cannot be \"5\""),
            ("delay -5ms", "delay cannot be \"-5ms\""),
            ("loss 101%", "loss cannot be \"101%\""),
            ("fog 1%", "unknown keyword \"fog\""),
        ] {
            let error = text.parse::<Impairment>().unwrap_err();
            assert!(error.to_string().contains(what), "{error}");
        }
    }

    #[test]
    fn who_would_sleep_is_told_that_the_port_may_have_more() {
        let (mut far, near) = wire(LinkType::Ethernet, Device::new(Features::NONE), 10);
        let mut impaired = Impair::new(near, Impairment { loss: 1.0, ..Impairment::default() });
        for _ in 0..3 {
            assert_eq!(far.transmit(&[b"x"], &Meta::default()).unwrap(), Transmitted::Taken);
        }
        let mut poll = || {
            let received = impaired.receive(0, 2, &mut |_| ()).unwrap();
            (received, impaired.deadline())
        };
        assert_eq!([poll(), poll(), poll()], [(0, Some(0)), (0, None), (0, None)]);
    }

    #[test]
    fn what_the_port_has_to_do_is_due_whatever_is_on_the_wire() {
        let (mut far, near) = wire(LinkType::Ethernet, Device::new(Features::NONE), 10);
        let slow = Impair::new(near, "delay 50us".parse().unwrap());
        let mut slower = Impair::new(slow, "delay 1s".parse().unwrap());
        assert_eq!(slower.deadline(), None);
        assert_eq!(far.transmit(&[b"x"], &Meta::default()).unwrap(), Transmitted::Taken);
        assert_eq!(slower.receive(0, 10, &mut |_| ()).unwrap(), 0);
        assert_eq!(slower.deadline(), Some(50_000));
        assert_eq!(slower.receive(50_000, 10, &mut |_| ()).unwrap(), 0);
        assert_eq!(slower.deadline(), Some(1_000_050_000));
    }
}
