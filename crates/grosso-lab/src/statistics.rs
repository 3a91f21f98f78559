//! Statistics of repeated measurements, and number formats for tables.

use std::time::Duration;

/// Median, minimum and maximum of several measurements. Without measurements, all fields are NaN, and the JSON omits
/// them.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, schemars::JsonSchema)]
pub struct Spread {
    /// The median.
    #[serde(skip_serializing_if = "is_absent")]
    pub median: f64,
    /// The minimum.
    #[serde(skip_serializing_if = "is_absent")]
    pub min: f64,
    /// The maximum.
    #[serde(skip_serializing_if = "is_absent")]
    pub max: f64,
    /// The measurements in ascending order, or evenly spaced samples of them.
    #[serde(skip)]
    sample: Sample,
}

/// Figures in ascending order.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sample {
    values: [f64; SAMPLE_MAX],
    len: usize,
}

impl Spread {
    /// The spread if there are no measurements.
    const ABSENT: Self =
        Self { median: f64::NAN, min: f64::NAN, max: f64::NAN, sample: Sample::NONE };

    /// Returns the spread of some measurements. Ignores values that are not finite, for example the cost per gigabyte
    /// if no data arrived.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let [Some(&min), Some(&max)] = [values.first(), values.last()] else {
            return Self::ABSENT;
        };
        let middle = values.len() / 2;
        let median = match values.len() % 2 {
            0 => (values[middle - 1] + values[middle]) / 2.0,
            _ => values[middle],
        };
        Self { median, min, max, sample: Sample::of(&values) }
    }

    /// Formats the minimum and the maximum, for example `(1-3)`.
    pub(crate) fn range(&self, format: impl Fn(f64) -> String) -> String {
        format!("({}-{})", format(self.min), format(self.max))
    }

    /// Formats the median, the minimum and the maximum, for example `2 (1-3)`.
    pub(crate) fn text(&self, format: impl Fn(f64) -> String) -> String {
        format!("{} {}", format(self.median), self.range(format))
    }

    /// Returns the measurements in ascending order. If there are too many, some are omitted.
    pub(crate) fn values(&self) -> &[f64] {
        &self.sample.values[..self.sample.len]
    }
}

impl Sample {
    const NONE: Self = Self { values: [0.0; SAMPLE_MAX], len: 0 };

    fn of(sorted: &[f64]) -> Self {
        let len = sorted.len().min(SAMPLE_MAX);
        let mut values = [0.0; SAMPLE_MAX];
        for (i, value) in values.iter_mut().take(len).enumerate() {
            // The sample consists of the middle values of `len` equal parts.
            *value = sorted[(2 * i + 1) * sorted.len() / (2 * len)];
        }
        Self { values, len }
    }
}

/// Returns whether a figure is missing. Takes a reference, because Serde passes one.
#[expect(clippy::trivially_copy_pass_by_ref)]
pub(crate) fn is_absent(figure: &f64) -> bool {
    !figure.is_finite()
}

/// Returns the ratio of two figures; `None` if the ratio is infinite or not a number.
pub(crate) fn ratio(over: f64, under: f64) -> Option<f64> {
    Some(over / under).filter(|ratio| ratio.is_finite())
}

/// Percentiles of request latency in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, schemars::JsonSchema)]
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
    /// Returns the percentiles for these request durations; `None` if there are none.
    #[must_use]
    pub fn of(took: impl IntoIterator<Item = Duration>) -> Option<Self> {
        let mut took: Vec<Duration> = took.into_iter().collect();
        took.sort_unstable();
        // The nearest rank: the smallest value that at least this percentage of requests do not exceed.
        let at = |percent: usize| {
            let rank = (took.len() * percent).div_ceil(100).checked_sub(1)?;
            Some(took.get(rank)?.as_secs_f64() * 1e6)
        };
        Some(Self { p50_us: at(50)?, p90_us: at(90)?, p95_us: at(95)?, p99_us: at(99)? })
    }
}

/// Formats a number with two decimals if it is below ten, and otherwise with one. Returns a dash if it is not finite.
pub(crate) fn digits(value: f64) -> String {
    if !value.is_finite() {
        return "-".into();
    }
    if value < 9.995 { format!("{value:.2}") } else { format!("{value:.1}") }
}

/// Formats a number without decimals.
pub(crate) fn whole(value: f64) -> String {
    format!("{value:.0}")
}

/// Formats a number with three decimals, for example seconds per gigabyte.
pub(crate) fn thousandths(value: f64) -> String {
    format!("{value:.3}")
}

/// Formats a number with at most five characters.
pub(crate) fn thousands(value: f64) -> String {
    match value {
        _ if !value.is_finite() => "-".into(),
        0.0..9_999.5 => format!("{value:.0}"),
        9_999.5..99_950.0 => format!("{:.1}k", value / 1e3),
        99_950.0..999_500.0 => format!("{:.0}k", value / 1e3),
        _ => format!("{:.1}M", value / 1e6),
    }
}

/// Maximum number of measurements that a spread keeps: more than most experiments take.
const SAMPLE_MAX: usize = 31;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_is_no_measurement_and_is_shown_as_a_dash() {
        let spread = Spread::of([f64::NAN, 2.0, f64::INFINITY]);
        assert_eq!((spread.median, spread.max, spread.values()), (2.0, 2.0, &[2.0][..]));
        assert_eq!((digits(f64::NAN), thousands(f64::INFINITY)), ("-".into(), "-".into()));
        assert_eq!((ratio(1.0, 0.0), ratio(0.0, 0.0), ratio(1.0, 2.0)), (None, None, Some(0.5)));
    }

    #[test]
    fn a_spread_keeps_its_measurements_or_some_of_all_sizes() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]).values(), [1.0, 2.0, 3.0]);
        let many = Spread::of((0..1000).map(f64::from));
        assert_eq!(many.values().len(), SAMPLE_MAX);
        assert!(many.values().is_sorted() && many.values()[SAMPLE_MAX / 2] == 500.0);
    }

    #[test]
    fn without_a_measurement_there_is_no_figure() {
        for spread in [Spread::of([]), Spread::of([f64::INFINITY])] {
            assert_eq!(serde_json::to_string(&spread).unwrap(), "{}");
            assert_eq!((digits(spread.median), spread.values().len()), ("-".into(), 0));
        }
    }

    #[test]
    fn middle_is_a_measurement_or_between_two() {
        let spread = Spread::of([3.0, 1.0, 8.0]);
        assert_eq!((spread.median, spread.min, spread.max), (3.0, 1.0, 8.0));
        assert_eq!(Spread::of([1.0, 2.0, 4.0, 9.0]).median, 3.0);
    }

    #[test]
    fn percentiles_are_requests_that_were_made() {
        let latency = Latency::of((1..=200).rev().map(Duration::from_micros)).unwrap();
        let all = [latency.p50_us, latency.p90_us, latency.p95_us, latency.p99_us];
        assert_eq!(all.map(f64::round), [100.0, 180.0, 190.0, 198.0]);
        let one = Latency::of([Duration::from_micros(7)]).unwrap();
        assert_eq!((one.p50_us.round(), one.p99_us.round()), (7.0, 7.0));
        assert_eq!(Latency::of([]), None);
    }

    #[test]
    fn figures_are_short() {
        let written = [0.4, 9_999.0, 10_000.0, 99_949.0, 123_456.0, 2e6].map(thousands);
        assert_eq!(written, ["0", "9999", "10.0k", "99.9k", "123k", "2.0M"]);
    }
}
