//! A wrapper that runs the engine with numbered buffers and a clock that the test sets.

use std::collections::BTreeSet;

use grosso::{
    CoalesceOptions, Coalescer, Delivery, Frame, Meta, Profile, Sink, Verdict,
    checksum::Checksum,
    coalesce::{BucketChoice, Bypass, Hold, Level, Reorder, reason::Close},
    meta::VlanTag,
    segment::{NoSegments, Outgoing},
    stats::CoalesceStats,
};
use grosso_testkit::{
    flows::{assert_conserved, assert_order_within_flows},
    oracle::{self, Lengths, Link, State, flow_of, parse, pseudo_header},
    random::Random,
};
use grosso_wire::LinkType;

use crate::engine::{PORTS, cut};

/// A buffer and its number.
#[derive(Debug)]
pub struct Numbered {
    pub(crate) number: usize,
    pub(crate) bytes: Vec<u8>,
}

impl AsRef<[u8]> for Numbered {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A pushed frame.
#[derive(Clone, Debug)]
pub struct Pushed {
    /// The bytes of the frame.
    pub bytes: Vec<u8>,
    /// The metadata of the frame.
    pub meta: Meta,
    /// Time of the push.
    pub at_ns: u64,
    /// The verdict on the frame.
    pub verdict: Verdict,
}

impl Pushed {
    /// Returns the number of wire packets in the delivery.
    fn packets(&self) -> u64 {
        self.meta.gso.map_or(1, |gso| gso.segments.max(1).into())
    }
}

/// A delivered frame.
#[derive(Clone, Debug)]
pub struct Left {
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
    /// Numbers of the frame's buffers, in order.
    pub numbers: Vec<usize>,
    /// Time of the delivery.
    pub at_ns: u64,
}

/// A run of one coalescer.
pub struct Session {
    coalescer: Coalescer<Numbered>,
    link: LinkType,
    /// The pushed frames; the number of a buffer is its index in this list.
    pub pushed: Vec<Pushed>,
    /// Delivered frames.
    pub left: Vec<Left>,
    /// Numbers of the buffers that the engine currently holds.
    pub held: BTreeSet<usize>,
    /// Current time of the engine.
    pub now_ns: u64,
}

impl Session {
    /// Creates a run with the tunnel ports of [`PORTS`], at time zero.
    #[must_use]
    pub fn new(profile: Profile, link: LinkType, seed: u64) -> Self {
        Self {
            coalescer: Coalescer::new(
                CoalesceOptions::new(link, seed).profile(profile).ports(PORTS),
            ),
            link,
            pushed: Vec::new(),
            left: Vec::new(),
            held: BTreeSet::new(),
            now_ns: 0,
        }
    }

    /// Pushes a frame.
    ///
    /// # Panics
    /// Panics if buffers or counters are wrong, like all methods that change the session.
    pub fn push(&mut self, bytes: &[u8], meta: Meta) -> Verdict {
        let number = self.pushed.len();
        let buffer = Numbered { number, bytes: bytes.to_vec() };
        self.held.insert(number);
        let verdict = self
            .step(|coalescer, now_ns, sink| coalescer.push(Frame { buffer, meta }, now_ns, sink));
        let pushed = Pushed { bytes: bytes.to_vec(), meta, at_ns: self.now_ns, verdict };
        self.pushed.push(pushed);
        self.account();
        verdict
    }

    /// Ends a poll.
    pub fn poll_end(&mut self) {
        self.step(|coalescer, now_ns, sink| coalescer.poll_end(now_ns, sink));
        self.account();
    }

    /// Ends a poll that used its whole budget.
    pub fn poll_end_full(&mut self) {
        self.step(|coalescer, now_ns, sink| coalescer.poll_end_full(now_ns, sink));
        self.account();
    }

    /// Delivers the trains whose hold times have expired.
    pub fn expire(&mut self) {
        self.step(|coalescer, now_ns, sink| coalescer.expire(now_ns, sink));
        self.account();
    }

    /// Delivers all held packets.
    pub fn finish(&mut self) {
        self.step(|coalescer, _, sink| coalescer.finish(sink));
        self.account();
    }

    /// Runs `step` on the coalescer at the current time, and records the deliveries.
    fn step<T>(
        &mut self,
        act: impl FnOnce(&mut Coalescer<Numbered>, u64, &mut dyn Sink<Numbered>) -> T,
    ) -> T {
        let Self { coalescer, left, now_ns, .. } = self;
        act(coalescer, *now_ns, &mut |delivery: Delivery<'_, _>| keep(delivery, *now_ns, left))
    }

    /// Tells the engine the round-trip time of this packet's flow.
    pub fn learn_round_trip(&mut self, packet: &[u8], round_trip_ns: u64) {
        self.coalescer.learn_round_trip(packet, round_trip_ns, self.now_ns);
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

    /// Returns the delivered packets, segmenting superframes, and for each packet whether its checksum is partial.
    ///
    /// # Panics
    /// Panics if a superframe cannot be segmented.
    #[must_use]
    pub fn packets(&self) -> Vec<(Vec<u8>, bool)> {
        self.left.iter().flat_map(|left| self.cut(left)).collect()
    }

    fn cut(&self, left: &Left) -> Vec<(Vec<u8>, bool)> {
        let is_partial = |meta: &Meta| matches!(meta.checksum, Checksum::Partial { .. });
        match cut(&[&left.bytes], &left.meta, self.link, Outgoing::default()) {
            Ok(packets) => {
                let packets: Vec<_> =
                    packets.into_iter().map(|(bytes, meta)| (bytes, is_partial(&meta))).collect();
                assert_eq!(packets.len(), left.packets as usize);
                packets
            }
            Err(NoSegments::NotSuperframe) => vec![(left.bytes.clone(), is_partial(&left.meta))],
            Err(error) => panic!("{error}: {left:?}"),
        }
    }

    /// Asserts that every buffer is returned exactly once, and that the counters agree with the pushes and deliveries.
    fn account(&mut self) {
        for left in &self.left[self.left.len() - self.unaccounted()..] {
            for number in &left.numbers {
                assert!(self.held.remove(number), "buffer {number} was returned twice");
            }
        }
        let stats = self.coalescer.stats();
        let sum = |counters: &[u64]| counters.iter().sum::<u64>();
        assert_eq!(stats.frames_in, self.pushed.len() as u64);
        assert_eq!(stats.frames_out, self.left.len() as u64);
        let packets = |number: &usize| self.pushed[*number].packets();
        assert_eq!(stats.packets_held(), self.held.iter().map(packets).sum());
        assert_eq!(stats.frames_out, sum(&stats.passed) + sum(&stats.closed));
        assert_eq!(stats.frames_out, sum(&stats.segments));
        assert_eq!(stats.closed[Close::Never.index()], 0);
        assert!(sum(&stats.refused) <= stats.closed[Close::NoMerge.index()]);
        assert!(stats.reorder.waiting() <= stats.packets_held());
    }

    /// Returns whether the profile repairs reordering.
    fn is_repaired(&self) -> bool {
        self.coalescer.profile().reorder.level != Level::Off
    }

    /// Returns the number of deliveries whose buffers have not been checked yet.
    fn unaccounted(&self) -> usize {
        let is_new = |left: &&Left| left.numbers.iter().any(|number| self.held.contains(number));
        self.left.iter().rev().take_while(is_new).count()
    }

    /// Asserts every invariant that applies while the engine holds nothing.
    ///
    /// # Panics
    /// Panics if one of these checks fails.
    pub fn assert_settled(&self) {
        assert_eq!(self.held, BTreeSet::new(), "every buffer is returned");
        assert_eq!(self.deadline(), None);
        let stats = self.coalescer.stats();
        assert_eq!((stats.packets_held(), stats.reorder.waiting()), (0, 0));
        let bytes = |sizes: &mut dyn Iterator<Item = usize>| sizes.sum::<usize>() as u64;
        assert_eq!(stats.bytes_in, bytes(&mut self.pushed.iter().map(|frame| frame.bytes.len())));
        assert_eq!(stats.bytes_out, bytes(&mut self.left.iter().map(|frame| frame.bytes.len())));
        let packets: u32 = self.left.iter().map(|left| left.packets).sum();
        assert_eq!(stats.packets_out, u64::from(packets));
        let joined = self.left.iter().filter(|left| left.joined);
        let joined: Vec<u64> = joined.map(|left| u64::from(left.packets)).collect();
        assert_eq!(stats.superframes, joined.len() as u64);
        assert_eq!(stats.superframe_packets, joined.iter().sum::<u64>());
        self.assert_reasons();
    }

    /// Asserts that segmenting the deliveries restores exactly the pushed packets, including partial checksums, and
    /// that packets that were not merged are unchanged. The order within each flow must also be the same, unless the
    /// profile repairs it. Must not be called if superframes were pushed.
    ///
    /// # Panics
    /// Panics if this check fails.
    pub fn assert_reversible(&self) {
        let link = if self.link == LinkType::Raw { Link::Ip } else { Link::Ethernet };
        let is_partial = |meta: Meta| matches!(meta.checksum, Checksum::Partial { .. });
        let pushed: Vec<_> =
            self.pushed.iter().map(|frame| tagged(&frame.bytes, is_partial(frame.meta))).collect();
        let left: Vec<_> =
            self.packets().iter().map(|(bytes, partial)| tagged(bytes, *partial)).collect();
        assert_conserved(&pushed, &left);
        if !self.is_repaired() {
            assert_order_within_flows(&untagged(&pushed), &untagged(&left), link);
        }
        for left in self.left.iter().filter(|left| !left.joined) {
            assert_eq!(left.numbers.len(), 1);
            let pushed = &self.pushed[left.numbers[0]];
            let known = |meta: Meta| (meta.gso, meta.vlan, meta.hash, meta.timestamp_ns);
            assert_eq!((&left.bytes, known(left.meta)), (&pushed.bytes, known(pushed.meta)));
        }
    }

    /// Asserts that a packet was refused or passed for the reason in its verdict. A refused packet may also count as
    /// passed, because it ends a train with which it cannot merge. Asserts nothing if any packet had to wait, because
    /// only the counters show the final verdict on such a packet.
    fn assert_reasons(&self) {
        let stats = self.coalescer.stats();
        let mut refused = vec![0; stats.refused.len()];
        let mut passed = vec![0; stats.passed.len()];
        for frame in &self.pushed {
            match frame.verdict {
                Verdict::Refused(reason) => refused[reason.index()] += 1,
                Verdict::Passed(reason) => passed[reason.index()] += 1,
                Verdict::Held | Verdict::Joined => {}
                Verdict::Waits => return,
            }
        }
        assert_eq!(refused, stats.refused);
        assert!(passed.iter().zip(&stats.passed).all(|(verdicts, counted)| verdicts <= counted));
    }
}

/// Returns the frame, followed by a byte that is 1 if the checksum is partial and otherwise 0.
fn tagged(bytes: &[u8], partial: bool) -> Vec<u8> {
    [bytes, &[u8::from(partial)]].concat()
}

fn untagged(frames: &[Vec<u8>]) -> Vec<&[u8]> {
    frames.iter().map(|frame| &frame[..frame.len() - 1]).collect()
}

fn keep(delivery: Delivery<'_, Numbered>, at_ns: u64, left: &mut Vec<Left>) {
    let mut bytes = Vec::new();
    delivery.copy_to(&mut bytes);
    assert_eq!(bytes.len(), delivery.len);
    let (meta, packets) = (delivery.meta, delivery.packets);
    let (joined, closed) = (delivery.is_joined(), delivery.closed);
    let numbers = delivery.into_parts().map(|part| part.buffer.number).collect();
    left.push(Left { bytes, meta, packets, joined, closed, numbers, at_ns });
}

/// Returns a profile with random limits, half of which are tight.
#[must_use]
pub fn random_profile(random: &mut Random) -> Profile {
    let mut profile = Profile::linux();
    profile.udp = !random.one_in(8);
    profile.tunnels_max = *random.choose(&[0, 1, 2, 2, 2, 15]);
    profile.table.buckets = *random.choose(&[1, 1, 2, 8, 64, 1024]);
    profile.table.choice =
        if random.one_in(3) { BucketChoice::Device } else { BucketChoice::Seeded };
    profile.limits.flows = *random.choose(&[1, 2, 3, 8, 64, 4096]);
    profile.limits.parts = *random.choose(&[0, 1, 2, 5, 40, 65536]);
    profile.limits.size_bytes = *random.choose(&[0, 1, 500, 1500, 3000, 20_000, 65536, 524_280]);
    profile.limits.tcp_segments = *random.choose(&[0, 1, 2, 3, 17, u16::MAX]);
    profile.limits.udp_segments = *random.choose(&[0, 1, 2, 3, 64, 128]);
    profile.limits.hold_ns = *random.choose(&[0, 0, 1, 100, 10_000]);
    profile.limits.full_poll_ns = *random.choose(&[0, 50, 1_000_000]);
    profile.hold = *random.choose(&[Hold::Fixed, Hold::Controlled]);
    let bypass = Bypass { probe_bytes: 3000, joined_min: 2, skip_bytes: 2000 };
    profile.bypass = random.one_in(4).then_some(bypass);
    profile
}

/// Returns random settings for reordering repair, which may be off. Half of the settings have tight limits.
#[must_use]
pub fn random_reorder(random: &mut Random) -> Reorder {
    let mut reorder = Reorder::OFF;
    reorder.level = *random.choose(&[Level::Off, Level::Batch, Level::Holes, Level::Holes]);
    reorder.hole_ns_max = *random.choose(&[0, 30, 1000, 100_000]);
    reorder.hole_ns_min = *random.choose(&[0, 30, 100_000]);
    reorder.round_trip_ns = *random.choose(&[0, 0, 100, 1_000_000]);
    reorder.flows = *random.choose(&[1, 2, 256]);
    reorder.flow_runs = *random.choose(&[1, 3, 64]);
    reorder.flow_bytes = *random.choose(&[0, 3000, 256 << 10]);
    reorder.queue_bytes = *random.choose(&[0, 9000, 8 << 20]);
    reorder.idle_ns = *random.choose(&[0, 50_000, 100_000_000]);
    reorder
}

/// Returns a frame as a device delivers it: possibly with a partial checksum, and with correct checksum metadata.
#[must_use]
pub fn received(frame: &[u8], link: Link, random: &mut Random) -> (Vec<u8>, Meta) {
    let mut meta = Meta {
        hash: device_hash(frame, link),
        vlan: random.one_in(12).then_some(VlanTag { protocol: 0x8100, tci: 7 }),
        timestamp_ns: random.one_in(2).then(|| random.bits()),
        ..Meta::default()
    };
    match random.below(5) {
        0 => meta.checksum = complete(frame, link),
        1 => meta.checksum = unnecessary(frame, link, random),
        2 => {
            if let Some((seeded, checksum)) = partial(frame, link) {
                meta.checksum = checksum;
                return (seeded, meta);
            }
        }
        _ => {}
    }
    (frame.to_vec(), meta)
}

/// Completes every checksum in a frame that can be parsed, from the inside out.
pub fn complete_checksums(frame: &mut [u8], link: Link) {
    let layers = parse(frame, link, Lengths::Declared).layers;
    for (index, layer) in layers.iter().enumerate().rev() {
        let field = match layer.name {
            "ipv4" => 10,
            "tcp" => 16,
            "udp" => 6,
            "gre" => 4,
            _ => continue,
        };
        let verdicts = oracle::verify(frame, link);
        let wrong =
            |verdict: &&oracle::Verdict| verdict.layer == index && verdict.state == State::Wrong;
        if let Some(verdict) = verdicts.iter().find(wrong) {
            let at = layer.offset + field;
            frame[at..at + 2].copy_from_slice(&verdict.expected.to_be_bytes());
        }
    }
}

/// Returns a flow hash as a device computes it: the same for all packets of a flow and shared by many flows; `None` for
/// one flow in three.
fn device_hash(frame: &[u8], link: Link) -> Option<u32> {
    let flow = flow_of(frame, link)?.to_string();
    let hash =
        flow.bytes().fold(0_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    (!hash.is_multiple_of(3)).then_some(hash % 5)
}

/// Returns the sum over all bytes from the first IP header to the end of the frame, as a device with complete checksums
/// reports it.
fn complete(frame: &[u8], link: Link) -> Checksum {
    let parsed = parse(frame, link, Lengths::Declared);
    match parsed.layers.iter().find(|layer| layer.is_ip()) {
        Some(network) => Checksum::Complete { sum: oracle::sum(&frame[network.offset..]) },
        None => Checksum::None,
    }
}

/// Returns at how many levels the checksums are correct, or a smaller number.
fn unnecessary(frame: &[u8], link: Link, random: &mut Random) -> Checksum {
    let verdicts = oracle::verify(frame, link);
    let covering = verdicts.iter().filter(|verdict| {
        matches!(verdict.name, "tcp" | "udp" | "gre") && verdict.state != State::Absent
    });
    let right = covering.take_while(|verdict| verdict.state == State::Right).count();
    match right {
        0 => Checksum::None,
        right => Checksum::Unnecessary { levels: random.below(right) as u8 },
    }
}

/// Returns the frame as its sender passes it to a device that completes the innermost checksum; `None` if any checksum
/// is wrong.
fn partial(frame: &[u8], link: Link) -> Option<(Vec<u8>, Checksum)> {
    let parsed = parse(frame, link, Lengths::Declared);
    let transport = parsed.last()?;
    let offset = match transport.name {
        "tcp" => 16,
        "udp" if transport.number("checksum") != 0 => 6,
        _ => return None,
    };
    let verdicts = oracle::verify(frame, link);
    if verdicts.iter().any(|v| !matches!(v.state, State::Right | State::Absent)) {
        return None;
    }
    let network = parsed.network_of(parsed.layers.len() - 1)?;
    let protocol = if transport.name == "tcp" { 6 } else { 17 };
    let addresses = (network.bytes("source"), network.bytes("destination"));
    let len = transport.end - transport.offset;
    let seed = oracle::sum(&pseudo_header(addresses.0, addresses.1, protocol, len));
    let mut frame = frame.to_vec();
    let at = transport.offset + offset;
    frame[at..at + 2].copy_from_slice(&seed.to_be_bytes());
    let checksum = Checksum::Partial { start: transport.offset as u16, offset: offset as u16 };
    Some((frame, checksum))
}
