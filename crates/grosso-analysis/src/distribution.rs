//! Collects statistics on values in bounded memory, and computes percentiles.

use schemars::JsonSchema;
use serde::Serialize;

/// Histogram of values. Values below `EXACT`, a power of two, are counted exactly. Larger values are counted in ranges
/// narrower than `2 / EXACT` times the value. The default is accurate to 0.1 %.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distribution<const EXACT: u64 = 2048> {
    /// Count in each range, up to the largest value so far: at most 56,320 ranges by default, and 496 with 16 exact
    /// values.
    counts: Vec<u64>,
    total: u64,
    sum: u128,
    max: u64,
}

/// Percentiles of a distribution. The given percentage of the values does not exceed the percentile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct Quantiles {
    pub p50: u64,
    pub p99: u64,
    pub max: u64,
}

impl<const EXACT: u64> Distribution<EXACT> {
    /// Adds `times` occurrences of `value`.
    #[inline]
    pub fn add(&mut self, value: u64, times: u64) {
        let range = range_of::<EXACT>(value);
        if range >= self.counts.len() {
            self.counts.resize(range + 1, 0);
        }
        self.counts[range] += times;
        self.total += times;
        self.sum += u128::from(value) * u128::from(times);
        self.max = self.max.max(value);
    }

    /// Returns the number of values.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the mean of the values; `None` if there are none.
    pub fn mean(&self) -> Option<f64> {
        (self.total > 0).then(|| self.sum as f64 / self.total as f64)
    }

    /// Returns the percentiles by the nearest-rank method: the smallest value that the given percentage of the values
    /// does not exceed. Returns `None` if there are no values.
    pub fn quantiles(&self) -> Option<Quantiles> {
        let p50 = self.quantile(50)?;
        Some(Quantiles { p50, p99: self.quantile(99)?, max: self.max })
    }

    /// Returns the cumulative counts: the upper end of each non-empty range, and the number of values up to it.
    pub fn cumulative(&self) -> impl Iterator<Item = (u64, u64)> {
        let mut so_far = 0;
        let counted = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        counted.map(move |(range, count)| {
            so_far += count;
            (last_of::<EXACT>(range).min(self.max), so_far)
        })
    }

    fn quantile(&self, percent: u64) -> Option<u64> {
        let rank = (u128::from(self.total) * u128::from(percent)).div_ceil(100).max(1);
        self.cumulative().find(|(_, so_far)| u128::from(*so_far) >= rank).map(|(value, _)| value)
    }
}

fn range_of<const EXACT: u64>(value: u64) -> usize {
    let shift = (u64::BITS - value.leading_zeros()).saturating_sub(EXACT.ilog2());
    (u64::from(shift) * EXACT / 2 + (value >> shift)) as usize
}

/// Returns the last value of a range.
fn last_of<const EXACT: u64>(range: usize) -> u64 {
    let half = EXACT / 2;
    let shift = (range as u64 / half).saturating_sub(1);
    let first = range as u64 - shift * half;
    // The last range ends at the largest 64-bit number.
    ((u128::from(first + 1) << shift) - 1) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_ranges<const EXACT: u64>() {
        for shift in 0..64 {
            for value in [1 << shift, (1 << shift) + 1, (1 << shift) - 1, u64::MAX >> shift] {
                let last = last_of::<EXACT>(range_of::<EXACT>(value));
                assert!(last >= value, "{value}");
                assert!(value >= EXACT || last == value, "{value}");
                assert!(
                    u128::from(last - value) * u128::from(EXACT) < 2 * u128::from(value.max(1)),
                    "{value}: {last}"
                );
                let (own, next) = (range_of::<EXACT>(value), last.checked_add(1));
                assert!(next.is_none_or(|next| range_of::<EXACT>(next) == own + 1), "{value}");
            }
        }
    }

    #[test]
    fn values_are_exact_or_too_high_by_less_than_the_accuracy() {
        check_ranges::<2048>();
        check_ranges::<16>();
        assert_eq!((range_of::<2048>(u64::MAX), range_of::<16>(u64::MAX)), (56_319, 495));
    }

    #[test]
    fn quantiles_are_nearest_ranks() {
        let mut spread: Distribution = Distribution::default();
        assert_eq!((spread.quantiles(), spread.mean()), (None, None));
        (1..=200).for_each(|value| spread.add(value, 1));
        assert_eq!(spread.quantiles(), Some(Quantiles { p50: 100, p99: 198, max: 200 }));
        assert_eq!(spread.mean(), Some(100.5));
        spread.add(1_000_003, 1800);
        assert_eq!(
            spread.quantiles(),
            Some(Quantiles { p50: 1_000_003, p99: 1_000_003, max: 1_000_003 })
        );
        assert_eq!(spread.total(), 2000);
        assert_eq!(spread.cumulative().nth(9), Some((10, 10)));
    }
}
