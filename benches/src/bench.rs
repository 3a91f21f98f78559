//! Times a step of work with Criterion, hot or cold, in nanoseconds per packet.

use std::time::{Duration, Instant};

use criterion::{BenchmarkGroup, Criterion, SamplingMode, measurement::WallTime};

use crate::step::{Cache, Step};

/// Extension of Criterion's groups for benchmarks of steps.
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
                        work.touch();
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

/// Returns the Criterion configuration of all benchmarks: 30 rounds of equal length.
#[must_use]
pub fn configuration() -> Criterion {
    Criterion::default()
        .sample_size(30)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_millis(1500))
        .without_plots()
}

/// Creates a group whose rounds all have the same length.
#[must_use]
pub fn group<'a>(criterion: &'a mut Criterion, name: &str) -> BenchmarkGroup<'a, WallTime> {
    let mut group = criterion.benchmark_group(name);
    group.sampling_mode(SamplingMode::Flat);
    group
}
