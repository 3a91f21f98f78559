//! How Criterion times a step of work: nanoseconds a packet, hot or cold.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use criterion::{BenchmarkGroup, Criterion, SamplingMode, measurement::WallTime};

/// Work that is done step by step, without end.
pub trait Step {
    /// The frames that the next step reads.
    fn upcoming(&self) -> impl Iterator<Item = &[u8]>;

    /// Does one step. Gives the packets that it was about.
    fn step(&mut self) -> usize;
}

/// Whether the bytes of a step are in the cache when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// Every cache line of the frames was just read, outside the time that counts.
    Hot,
    /// The trace, which is longer than the inner caches, is streamed from memory.
    Cold,
}

impl Cache {
    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hot => "hot",
            Self::Cold => "cold",
        }
    }
}

/// Adds a benchmark of steps to a group.
pub trait Bench {
    /// Times `work`; one iteration is one packet.
    fn packets(&mut self, name: &str, cache: Cache, work: &mut impl Step);
}

impl Bench for BenchmarkGroup<'_, WallTime> {
    fn packets(&mut self, name: &str, cache: Cache, work: &mut impl Step) {
        self.bench_function(name, |bencher| {
            bencher.iter_custom(|packets_wanted| {
                let mut packets = 0;
                let mut elapsed = Duration::ZERO;
                while packets < packets_wanted {
                    if cache == Cache::Hot {
                        touch(work);
                    }
                    let start = Instant::now();
                    packets += work.step() as u64;
                    elapsed += start.elapsed();
                }
                elapsed.mul_f64(packets_wanted as f64 / packets as f64)
            });
        });
    }
}

/// Criterion as every benchmark here uses it: 30 rounds of equal length.
#[must_use]
pub fn configuration() -> Criterion {
    Criterion::default()
        .sample_size(30)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_millis(1500))
        .without_plots()
}

/// A group whose rounds all have the same length.
#[must_use]
pub fn group<'a>(criterion: &'a mut Criterion, name: &str) -> BenchmarkGroup<'a, WallTime> {
    let mut group = criterion.benchmark_group(name);
    group.sampling_mode(SamplingMode::Flat);
    group
}

fn touch(work: &impl Step) {
    for frame in work.upcoming() {
        let sum = frame.iter().step_by(CACHE_LINE_BYTES).fold(0_u8, |sum, b| sum.wrapping_add(*b));
        black_box(sum);
    }
}

const CACHE_LINE_BYTES: usize = 64;
