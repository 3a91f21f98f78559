//! How long requests took.

use std::time::Duration;

/// What so many of a hundred requests took at most, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct Latency {
    /// Half of them.
    pub p50_us: f64,
    /// Nine of ten.
    pub p90_us: f64,
    /// 95.
    pub p95_us: f64,
    /// 99.
    pub p99_us: f64,
}

impl Latency {
    /// Of all of these requests; none without any.
    #[must_use]
    pub fn of(took: impl IntoIterator<Item = Duration>) -> Option<Self> {
        let mut took: Vec<Duration> = took.into_iter().collect();
        took.sort_unstable();
        // The nearest rank: the least that so many do not exceed.
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
