//! Statistics of repeated measurements.

/// Median, minimum and maximum of several measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The minimum.
    pub min: f64,
    /// The maximum.
    pub max: f64,
}

impl Spread {
    /// The spread of at least one measurement; without any, all fields are zero.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let [Some(&min), Some(&max)] = [values.first(), values.last()] else {
            return Self::default();
        };
        let middle = values.len() / 2;
        let median = match values.len() % 2 {
            0 => (values[middle - 1] + values[middle]) / 2.0,
            _ => values[middle],
        };
        Self { median, min, max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn middle_is_a_measurement_or_between_two() {
        let spread = Spread::of([3.0, 1.0, 8.0]);
        assert_eq!((spread.median, spread.min, spread.max), (3.0, 1.0, 8.0));
        assert_eq!(Spread::of([1.0, 2.0, 4.0, 9.0]).median, 3.0);
        assert_eq!(Spread::of([]), Spread::default());
    }
}
