//! Latency of requests.

use std::time::Duration;

/// Percentiles of the time that requests took, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct Latency {
    /// The 50th percentile.
    pub p50_us: f64,
    /// The 90th percentile.
    pub p90_us: f64,
    /// The 95th percentile.
    pub p95_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
}

impl Latency {
    /// The percentiles of these requests; `None` if there are none.
    #[must_use]
    pub fn of(took: impl IntoIterator<Item = Duration>) -> Option<Self> {
        let mut took: Vec<Duration> = took.into_iter().collect();
        took.sort_unstable();
        // The nearest rank: the least value that the given percentage of requests does not exceed.
        let at = |percent: usize| {
            let rank = (took.len() * percent).div_ceil(100).checked_sub(1)?;
            Some(took.get(rank)?.as_secs_f64() * 1e6)
        };
        Some(Self { p50_us: at(50)?, p90_us: at(90)?, p95_us: at(95)?, p99_us: at(99)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_requests_that_were_made() {
        let latency = Latency::of((1..=200).rev().map(Duration::from_micros)).unwrap();
        let all = [latency.p50_us, latency.p90_us, latency.p95_us, latency.p99_us];
        assert_eq!(all.map(f64::round), [100.0, 180.0, 190.0, 198.0]);
        let one = Latency::of([Duration::from_micros(7)]).unwrap();
        assert_eq!((one.p50_us.round(), one.p99_us.round()), (7.0, 7.0));
        assert_eq!(Latency::of([]), None);
    }
}
