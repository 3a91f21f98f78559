//! Compares the IPv4 IDs (the identification field) of consecutive frames in a flow.
//!
//! Linux numbers wire packets consecutively, so the difference between the IDs of two frames shows how many packets the
//! first one contained (rules G14, S14).

use super::SEGMENT_BYTES_MIN;

/// The segment sizes that are consistent with all ID steps so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identifications {
    low: u32,
    high: u32,
    /// Sizes that divide superframes without a remainder, each with the number of such superframes.
    exact: [(u32, u32); EXACT_SIZES],
    /// Number of steps that limit the possible segment sizes.
    steps: u32,
    /// Largest payload of a frame after which the ID increased by one.
    single_max: u32,
    /// Number of consecutive frames with the same ID.
    pub(super) fixed: u64,
}

impl Default for Identifications {
    fn default() -> Self {
        Self {
            low: 1,
            high: u32::MAX,
            exact: [(0, 0); EXACT_SIZES],
            steps: 0,
            single_max: 0,
            fixed: 0,
        }
    }
}

/// Segment size suggested by the ID steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) bytes: u16,
    /// Whether no other size is consistent with the steps.
    pub(super) is_sure: bool,
}

impl Identifications {
    /// Records that the ID increased by `step` from a frame with `payload` bytes to the next frame, with no gap in the
    /// flow between the two. Returns `false` if this contradicts earlier steps.
    pub(super) fn narrow(&mut self, payload: u32, step: u32) -> bool {
        if step == 1 {
            if payload > self.high {
                return false;
            }
            self.single_max = self.single_max.max(payload);
            return true;
        }
        let (low, high) = bounds(payload, step);
        // If no segment size explains a step, another flow or a lost packet caused it.
        if (low as usize) < SEGMENT_BYTES_MIN {
            return true;
        }
        let (low, high) = (self.low.max(low), self.high.min(high));
        if low > high || high < self.single_max {
            return false;
        }
        (self.low, self.high) = (low, high);
        self.steps += 1;
        if payload.is_multiple_of(step) {
            let size = payload / step;
            let slot = self.exact.iter_mut().find(|slot| slot.0 == size || slot.1 == 0);
            if let Some(slot) = slot {
                *slot = (size, slot.1 + 1);
            }
        }
        true
    }

    /// Returns the size that explains the steps: the first one in `likely` that is in range, or else a size that
    /// divides several superframes. A single step justifies only a guess, and only if it rules out the first size in
    /// `likely`.
    pub(super) fn size(
        &self,
        likely: &[Option<usize>],
        is_shown: impl Fn(usize) -> bool,
    ) -> Option<Told> {
        let is_inside = |size: &&usize| (self.low as usize..=self.high as usize).contains(*size);
        let mut inside = likely.iter().flatten().filter(is_inside).copied();
        let is_refuted = likely.iter().flatten().next().is_some_and(|first| !is_inside(&first));
        if self.steps < STEPS_MIN && !(self.steps > 0 && is_refuted) {
            return None;
        }
        let confirmed = inside.next();
        let exact = self.exact.iter().map(|&(size, count)| (size as usize, count));
        let exact = exact.filter(|(size, count)| *count > 0 && is_inside(&size));
        let exact = exact.max_by_key(|&(_, count)| count);
        let is_narrow = self.high - self.low < SLACK_BYTES;
        let (size, is_sure) = match (exact, confirmed) {
            (Some((exact, _)), Some(confirmed)) if exact == confirmed => (exact, true),
            (Some((exact, STEPS_MIN..)), _) => (exact, true),
            (_, Some(confirmed)) => (confirmed, is_narrow || is_shown(confirmed)),
            // A range alone does not determine the size.
            (_, None) => return None,
        };
        let bytes = u16::try_from(size).ok()?;
        let is_sure = (is_sure || self.low == self.high) && self.steps >= STEPS_MIN;
        Some(Told { bytes, is_sure })
    }

    /// Returns the number of superframes with informative steps if segments of `size` bytes explain these steps,
    /// otherwise 0.
    pub(super) fn agreeing(&self, size: usize) -> u64 {
        let agrees = (self.low as usize..=self.high as usize).contains(&size);
        if agrees { u64::from(self.steps) } else { 0 }
    }

    /// Returns the number of superframes whose ID steps are informative.
    pub(super) const fn steps(&self) -> u64 {
        self.steps as u64
    }

    /// Returns whether consecutive frames have the same ID, as some senders do.
    pub(super) const fn is_fixed(&self) -> bool {
        self.fixed > self.steps as u64
    }

    /// Returns the largest payload that was sent in a single packet.
    pub(super) const fn single_max(&self) -> usize {
        self.single_max as usize
    }
}

/// Returns the smallest and largest segment sizes that split `payload` bytes into `step` segments.
fn bounds(payload: u32, step: u32) -> (u32, u32) {
    (payload.div_ceil(step.max(1)), payload.saturating_sub(1) / step.saturating_sub(1).max(1))
}

/// If two sizes differ by less than this, they count as the same announced size: the length of TCP options is a
/// multiple of it.
const SLACK_BYTES: u32 = 4;
/// Maximum number of tracked sizes that divide superframes without a remainder.
const EXACT_SIZES: usize = 4;
/// Number of agreeing steps that count as evidence.
const STEPS_MIN: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(steps: &[(u32, u32)]) -> Identifications {
        let mut identifications = Identifications::default();
        for &(payload, step) in steps {
            assert!(identifications.narrow(payload, step), "{payload} bytes in {step} steps");
        }
        identifications
    }

    fn never(_size: usize) -> bool {
        false
    }

    #[test]
    fn steps_narrow_the_size_down() {
        let ids = of(&[(14000, 10), (28000, 20), (7100, 6)]);
        assert_eq!(ids.size(&[], never), Some(Told { bytes: 1400, is_sure: true }));
        // The range of IP IDs alone is not enough to determine a segment size.
        let ids = of(&[(14001, 11), (28001, 21)]);
        assert_eq!(ids.size(&[Some(1390)], |_| true), Some(Told { bytes: 1390, is_sure: true }));
        assert_eq!(ids.size(&[], never), None);
    }

    #[test]
    fn one_step_is_a_guess_and_a_contradiction_is_reported() {
        assert_eq!(of(&[(14000, 10)]).size(&[Some(1400)], never), None);
        let refuted = of(&[(14480, 10)]).size(&[Some(1248), Some(1448)], |_| true);
        assert_eq!(refuted, Some(Told { bytes: 1448, is_sure: false }));
        let mut ids = of(&[(14480, 10), (28960, 20)]);
        assert!(!ids.narrow(12480, 10), "a segment size of 1248 contradicts 1448");
    }

    #[test]
    fn a_step_of_one_is_one_packet() {
        let mut ids = of(&[(8948, 1), (8948, 1)]);
        assert_eq!(ids.single_max(), 8948);
        assert!(!ids.narrow(14480, 10), "one packet had 8948 bytes");
    }
}
