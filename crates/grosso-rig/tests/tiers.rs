//! Tests that the fast tiers of the merge path only save time: deliveries, verdicts and counters are the same with and
//! without them.
//!
//! `GROSSO_CASES_FACTOR` multiplies the number of random frames: a factor of 50 means a million frames.

use std::env;

use grosso::{
    CoalesceOptions, Coalescer, Delivery, Frame, Meta, Profile, Sink, Verdict,
    acknowledge::{Record, Summary},
    checksum::Checksum,
    coalesce::{
        Acknowledgments, AtLimit, Batch, Bypass, FixedIdentification, Hold, Level, Options,
        Padding, Push, Refused, Reorder, Rules, Sizes, TrainChecksum, Vary, Vector, ZeroEcho,
        reason::Close,
    },
    meta::Gso,
};
use grosso_rig::{
    engine::PORTS,
    session::{random_profile, random_reorder, received},
};
use grosso_testkit::{
    Traffic,
    oracle::Link,
    random::Random,
    workloads::{POLL, WORKLOADS, Workload, workload},
};
use grosso_wire::LinkType;

/// An output event of a coalescer.
#[derive(Debug, PartialEq)]
enum Left {
    Delivery {
        bytes: Vec<u8>,
        meta: Meta,
        packets: u32,
        is_joined: bool,
        closed: Close,
        acknowledged: Option<Summary>,
    },
    Vector {
        packets: Vec<Vec<u8>>,
        records: Vec<Record>,
        closed: Close,
    },
    Discarded(Vec<u8>),
}

#[derive(Default)]
struct Receiver(Vec<Left>);

impl Sink<Vec<u8>> for Receiver {
    fn deliver(&mut self, delivery: Delivery<'_, Vec<u8>>) {
        let mut bytes = Vec::new();
        delivery.copy_to(&mut bytes);
        let (meta, packets, closed) = (delivery.meta, delivery.packets, delivery.closed);
        let (is_joined, acknowledged) = (delivery.is_joined(), delivery.acknowledged().copied());
        self.0.push(Left::Delivery { bytes, meta, packets, is_joined, closed, acknowledged });
    }

    fn deliver_vector(&mut self, vector: Vector<'_, Vec<u8>>) {
        let packets = vector.packets().map(<[u8]>::to_vec).collect();
        let (records, closed) = (vector.records().to_vec(), vector.closed);
        self.0.push(Left::Vector { packets, records, closed });
    }

    fn discard(&mut self, buffer: Vec<u8>) {
        self.0.push(Left::Discarded(buffer));
    }
}

/// Two coalescers that run in lockstep: one with all tiers, and one without any.
struct Both {
    profile: Profile,
    coalescers: [Coalescer<Vec<u8>>; 2],
    joined: usize,
    /// The last pushed frame.
    last: (Vec<u8>, Meta),
}

impl Both {
    fn new(profile: Profile, link: LinkType) -> Self {
        let with =
            Coalescer::new(CoalesceOptions::new(link, SEED).profile(profile.clone()).ports(PORTS));
        let without = Coalescer::without_tiers(
            CoalesceOptions::new(link, SEED).profile(profile.clone()).ports(PORTS),
        );
        Self { profile, coalescers: [with, without], joined: 0, last: Default::default() }
    }

    fn step<T: PartialEq + std::fmt::Debug>(
        &mut self,
        step: impl Fn(&mut Coalescer<Vec<u8>>, &mut Receiver) -> T,
    ) -> T {
        let [with, without] = &mut self.coalescers;
        let (mut sooner, mut later) = (Receiver::default(), Receiver::default());
        let (answer, examined) = (step(with, &mut sooner), step(without, &mut later));
        assert_eq!(answer, examined, "{:02x?} {:?}", self.last, self.profile);
        assert_eq!(sooner.0, later.0, "{:02x?} {:?}", self.last, self.profile);
        assert_eq!(with.deadline(), without.deadline(), "{:?}", self.profile);
        answer
    }

    fn push(&mut self, bytes: &[u8], meta: Meta, now_ns: u64) {
        self.last = (bytes.to_vec(), meta);
        let verdict = self.step(|coalescer, sink| {
            coalescer.push(Frame { buffer: bytes.to_vec(), meta }, now_ns, sink)
        });
        self.joined += usize::from(verdict == Verdict::Joined);
    }

    fn poll_end(&mut self, now_ns: u64) {
        self.step(|coalescer, sink| coalescer.poll_end(now_ns, sink));
        self.assert_counters();
    }

    fn finish(&mut self) {
        self.step(|coalescer, sink| coalescer.finish(sink));
        self.assert_counters();
    }

    fn assert_counters(&self) {
        let [with, without] = &self.coalescers;
        assert_eq!(with.stats(), without.stats(), "{:?}", self.profile);
    }
}

/// Returns the built-in profiles, and the default profile with each stage added.
fn profiles() -> Vec<Profile> {
    let with = |edit: fn(&mut Profile)| {
        let mut profile = Profile::linux();
        edit(&mut profile);
        profile
    };
    let staged = [
        with(|profile| profile.batch = Batch::ByFlow { packets: 64 }),
        // This limit also ends a batch between two packets of the same flow.
        with(|profile| profile.batch = Batch::ByFlow { packets: 3 }),
        with(|profile| {
            profile.batch = Batch::ByFlow { packets: 64 };
            profile.bypass = Some(Bypass { probe_bytes: 3000, joined_min: 50, skip_bytes: 2000 });
        }),
        with(|profile| {
            profile.bypass = Some(Bypass { probe_bytes: 3000, joined_min: 2, skip_bytes: 2000 });
        }),
        // A packet that bypasses a stage may find no free slot, and then it does not merge.
        with(|profile| {
            profile.limits.parts = 3;
            profile.bypass = Some(Bypass { probe_bytes: 20_000, joined_min: 9, skip_bytes: 2000 });
        }),
        with(|profile| (profile.hold, profile.limits.hold_ns) = (Hold::Controlled, 100_000)),
        with(|profile| profile.reorder = Reorder::WITHIN_BATCH),
        with(|profile| profile.reorder = Reorder::holes(50_000)),
        with(|profile| profile.rules.acknowledgments = Acknowledgments::Filter),
        with(|profile| profile.rules.acknowledgments = Acknowledgments::Vector),
    ];
    Profile::all().into_iter().chain(staged).collect()
}

/// Returns a frame's metadata; `is_trusted` means that a device has verified the frame's checksums.
fn meta(workload: &Workload, frame: &[u8], is_trusted: bool) -> Meta {
    let checksum =
        if is_trusted { Checksum::Unnecessary { levels: u8::MAX } } else { Checksum::None };
    match workload.gso {
        None => Meta { checksum, ..Meta::default() },
        Some(gso) => {
            let (start, offset) = (gso.checksum_start as u16, gso.checksum_offset as u16);
            let size = (frame.len() - gso.checksum_start) / gso.segments;
            let segments = gso.segments as u16;
            let gso = Gso::every(size as u16).map(|every| Gso { segments, ..every });
            Meta { checksum: Checksum::Partial { start, offset }, gso, ..Meta::default() }
        }
    }
}

#[test]
fn every_workload_leaves_as_it_does_without_tiers() {
    for name in WORKLOADS {
        let mut workload = workload(name, SEED);
        workload.frames.truncate(WORKLOAD_FRAMES);
        let mut joined = 0;
        for profile in profiles() {
            // The packets in a poll arrive either at the same time, so that they bypass stages and batches, or one
            // after another.
            for (is_trusted, is_at_once) in [(true, true), (true, false), (false, true)] {
                let mut both = Both::new(profile.clone(), LinkType::Ethernet);
                for (index, frame) in workload.frames.iter().enumerate() {
                    let came = if is_at_once { index - index % POLL } else { index };
                    let now_ns = came as u64 * INTERVAL_NS;
                    both.push(frame, meta(&workload, frame, is_trusted), now_ns);
                    if index % POLL == POLL - 1 {
                        both.poll_end(now_ns);
                    }
                }
                both.finish();
                joined += both.joined;
            }
        }
        // In these workloads nothing can merge: no poll contains two packets from one of the thousand flows, and no
        // train can hold two superframes.
        let never = ["frag", "gso", "tcp4_1000rr"].iter().any(|prefix| name.starts_with(prefix));
        assert!(joined > 0 || never, "{name}: nothing joined");
    }
}

#[test]
fn random_frames_leave_as_they_do_without_tiers() {
    let factor = env::var("GROSSO_CASES_FACTOR").ok().and_then(|factor| factor.parse().ok());
    let runs = FRAMES / RUN_FRAMES * factor.unwrap_or(1);
    let mut joined = 0;
    for seed in 0..runs as u64 {
        let mut random = Random::new(seed);
        let link = *random.choose(&[Link::Ethernet, Link::Ethernet, Link::Ip]);
        let link_type = if link == Link::Ip { LinkType::Raw } else { LinkType::Ethernet };
        let mut both = Both::new(profile(&mut random), link_type);
        let deviations = *random.choose(&[0, 3, 12, 50]);
        let traffic = Traffic::over(link, seed).deviations_percent(deviations);
        let (mut now_ns, is_received) = (0, random.one_in(2));
        for frame in traffic.take(RUN_FRAMES) {
            // Some packets in a poll arrive at the same time.
            now_ns += if random.one_in(3) { random.below(120) as u64 } else { 0 };
            let (frame, meta) = match is_received {
                true => received(&frame, link, &mut random),
                false => (frame, Meta::default()),
            };
            both.push(&frame, meta, now_ns);
            match random.below(30) {
                0 => both.poll_end(now_ns),
                1 => both.step(|coalescer, sink| coalescer.poll_end_full(now_ns, sink)),
                2 => both.step(|coalescer, sink| coalescer.expire(now_ns, sink)),
                3 => both.step(|coalescer, _| coalescer.learn_round_trip(&frame, 5000, now_ns)),
                _ => {}
            }
        }
        both.finish();
        joined += both.joined;
    }
    assert!(joined > runs * RUN_FRAMES / 8, "{joined} joined in {runs} runs");
}

/// Returns a built-in profile, the default profile with random limits and stages, or a profile with random rules.
fn profile(random: &mut Random) -> Profile {
    let mut profile = match random.below(4) {
        0 => return random.choose(&profiles()).clone(),
        1 => Profile::linux(),
        _ => random_profile(random),
    };
    if random.one_in(3) {
        profile.reorder = random_reorder(random);
        profile.batch = *random.choose(&[Batch::AsItCame, Batch::ByFlow { packets: 8 }]);
    }
    if random.one_in(2) {
        rules(&mut profile.rules, random);
    }
    if profile.reorder.level == Level::Off && random.one_in(2) {
        profile.rules = Rules::INVERTIBLE;
    }
    profile
}

/// Sets random rules; each field requires an exact match half of the time.
fn rules(rules: &mut Rules, random: &mut Random) {
    let fields = [
        &mut rules.differentiated_services,
        &mut rules.flow_label,
        &mut rules.time_to_live,
        &mut rules.dont_fragment,
        &mut rules.identification,
        &mut rules.acknowledgment,
        &mut rules.window,
        &mut rules.timestamp_value,
        &mut rules.timestamp_echo,
    ];
    for field in fields {
        *field = *random.choose(&[Vary::Equal, Vary::Equal, Vary::First, Vary::Latest]);
    }
    rules.fixed_identification =
        *random.choose(&[FixedIdentification::Any, FixedIdentification::DontFragment]);
    rules.options = *random.choose(&[Options::Any, Options::Any, Options::TimestampOnly]);
    rules.sizes = *random.choose(&[Sizes::EqualButLast, Sizes::Any]);
    rules.push = *random.choose(&[Push::Ends, Push::Joins]);
    rules.refused = *random.choose(&[Refused::Starts, Refused::Leaves]);
    rules.flags_alone = *random.choose(&[0, 0, 0x41, 0xc1]);
    rules.congestion_alone = random.one_in(2);
    rules.at_limit = *random.choose(&[AtLimit::Next, AtLimit::Next, AtLimit::Ends]);
    rules.padding = *random.choose(&[Padding::Alone, Padding::Trim]);
    rules.zero_echo =
        *random.choose(&[ZeroEcho::Joins, ZeroEcho::Joins, ZeroEcho::Starts, ZeroEcho::Alone]);
    rules.checksum = *random.choose(&[TrainChecksum::Partial, TrainChecksum::Complete]);
    rules.acknowledgments = *random.choose(&[
        Acknowledgments::Alone,
        Acknowledgments::WindowUpdates,
        Acknowledgments::Join,
        Acknowledgments::Newer,
        Acknowledgments::Vector,
        Acknowledgments::Filter,
        Acknowledgments::FilterAggressive,
    ]);
}

const SEED: u64 = 1;
/// Interval between two packets, in nanoseconds.
const INTERVAL_NS: u64 = 700;
/// Number of frames of each workload: enough for every flow to send at least one.
const WORKLOAD_FRAMES: usize = 2048;
/// Default number of random frames.
const FRAMES: usize = 20_000;
/// Number of random frames per profile.
const RUN_FRAMES: usize = 200;
