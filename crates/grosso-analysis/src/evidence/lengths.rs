//! Derives a flow's segment size from the lengths of its frames.
//!
//! A superframe contains only full segments, unless it is the last frame of a write, which has PSH set. The segment
//! size therefore divides the lengths of all other frames.

use super::SEGMENT_BYTES_MIN;

/// Payload lengths of frames. Only the first few distinct lengths are tracked.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lengths {
    slots: [Slot; SLOTS],
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    payload: u32,
    frames: u32,
}

/// Conclusion from frame lengths about a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opinion {
    /// Too few frames were longer than the size.
    None,
    /// The lengths are multiples of the size.
    Multiples,
    /// The lengths are not multiples of the size.
    Others,
}

impl Lengths {
    /// Counts a frame that does not end a write.
    pub(super) fn count(&mut self, payload: usize) {
        if payload < SEGMENT_BYTES_MIN {
            return;
        }
        let payload = payload as u32;
        let slot = self.slots.iter_mut().find(|slot| slot.payload == payload || slot.frames == 0);
        if let Some(slot) = slot {
            slot.payload = payload;
            slot.frames = slot.frames.saturating_add(1);
        }
    }

    /// Returns whether the lengths of the frames longer than `size` support this size or contradict it.
    pub(super) fn opinion(&self, size: usize) -> Opinion {
        let longer = |slot: &&Slot| slot.payload as usize > size;
        let (mut agree, mut differ) = (0, 0);
        for slot in self.slots.iter().filter(longer) {
            let is_multiple = (slot.payload as usize).is_multiple_of(size.max(1));
            *if is_multiple { &mut agree } else { &mut differ } += u64::from(slot.frames);
        }
        match (agree, differ) {
            _ if agree + differ < FRAMES_MIN => Opinion::None,
            _ if agree >= differ * MAJORITY => Opinion::Multiples,
            _ if differ > agree => Opinion::Others,
            _ => Opinion::None,
        }
    }

    /// Returns the number of frames longer than `size` whose lengths are multiples of it.
    pub(super) fn multiples(&self, size: usize) -> u64 {
        self.multiples_beyond(size, size)
    }

    /// Returns the number of frames longer than `least` whose lengths are multiples of `size`.
    pub(super) fn multiples_beyond(&self, least: usize, size: usize) -> u64 {
        let is_multiple = |slot: &&Slot| {
            let payload = slot.payload as usize;
            payload > least && payload.is_multiple_of(size.max(1))
        };
        self.slots.iter().filter(is_multiple).map(|slot| u64::from(slot.frames)).sum()
    }

    /// Returns the largest size that divides several lengths.
    pub(super) fn divisor(&self) -> Option<usize> {
        let lengths = || self.slots.iter().filter(|slot| slot.frames > 0);
        let divisor = lengths().fold(0, |divisor, slot| gcd(slot.payload, divisor)) as usize;
        (lengths().count() >= LENGTHS_MIN && divisor >= SEGMENT_BYTES_MIN).then_some(divisor)
    }

    /// Returns the most frequent length, if no frame was longer. Frames that end a write are ignored.
    pub(super) fn plateau(&self) -> Option<usize> {
        let longest = self.slots.iter().max_by_key(|slot| slot.payload)?;
        let frames: u32 = self.slots.iter().map(|slot| slot.frames).sum();
        let is_usual = longest.frames >= PLATEAU_MIN && longest.frames > frames / 2;
        (is_usual && self.slots[SLOTS - 1].frames == 0).then_some(longest.payload as usize)
    }
}

fn gcd(one: u32, other: u32) -> u32 {
    if other == 0 { one } else { gcd(other, one % other) }
}

/// Maximum number of distinct lengths that are tracked.
const SLOTS: usize = 8;
/// Number of frames longer than a size that are needed before their lengths count for or against it.
const FRAMES_MIN: u64 = 2;
/// Minimum number of distinct lengths that must share a divisor.
const LENGTHS_MIN: usize = 3;
/// Number of multiples that outweigh one length that is not a multiple.
const MAJORITY: u64 = 9;
/// Number of frames with the same length that make it the usual one.
const PLATEAU_MIN: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn superframes_are_multiples_of_the_segment_size() {
        let mut lengths = Lengths::default();
        [14480, 2896, 65160, 28960].into_iter().for_each(|payload| lengths.count(payload));
        assert_eq!(lengths.opinion(1448), Opinion::Multiples);
        assert_eq!(lengths.opinion(988), Opinion::Others);
        assert_eq!(lengths.opinion(65160), Opinion::None);
        assert_eq!(lengths.plateau(), None);
        assert_eq!(lengths.divisor(), Some(1448));
    }

    #[test]
    fn equal_lengths_are_a_plateau() {
        let mut lengths = Lengths::default();
        (0..20).for_each(|_| lengths.count(8948));
        assert_eq!(lengths.plateau(), Some(8948));
        assert_eq!(lengths.opinion(1448), Opinion::Others);
        lengths.count(65160);
        assert_eq!(lengths.plateau(), None);
    }
}
