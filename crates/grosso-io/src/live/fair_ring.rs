//! A receive ring that drops frames of greedy flows before it is full, so that other flows still find free slots.

use grosso::fair::FairShare;
use grosso_sys::packet::{ReceiveRing, RingFrame};

/// A receive ring that drops frames of greedy flows. It tracks flows only while no slot outside the reserve is free.
#[derive(Debug)]
pub(super) struct FairRing {
    pub(super) ring: ReceiveRing,
    fair: Option<Box<FairShare>>,
    /// Number of dropped frames from greedy flows.
    pub(super) shed: u64,
    /// Number of frames to receive before the next check of the reserve.
    until_look: usize,
}

impl FairRing {
    pub(super) fn new(ring: ReceiveRing, fair: Option<FairShare>) -> Self {
        let fair = fair.map(Box::new);
        Self { ring, fair, shed: 0, until_look: 0 }
    }

    /// Selects frames to drop if only the ring's reserve is free, to keep the reserve free.
    pub(super) fn relieve(&mut self, now_ns: u64) {
        if self.until_look > 0 {
            return;
        }
        self.until_look = self.ring.layout().slots / LOOK_SHARE;
        let Self { ring, fair: Some(fair), .. } = self else { return };
        let kept = kept(ring.layout().slots);
        if ring.peek(kept).is_none() {
            return;
        }
        while let Some(frame) = ring.peek(fair.len()) {
            fair.join(frame);
        }
        fair.shed(kept, now_ns);
    }

    /// Returns the next frame that was not selected for dropping.
    #[inline]
    pub(super) fn receive(&mut self) -> Option<RingFrame> {
        loop {
            let Some(frame) = self.ring.receive() else {
                self.until_look = 0;
                return None;
            };
            self.until_look = self.until_look.saturating_sub(1);
            if !self.fair.as_mut().is_some_and(|fair| fair.leave()) {
                return Some(frame);
            }
            self.drop_of_greedy(frame);
        }
    }

    #[cold]
    fn drop_of_greedy(&mut self, frame: RingFrame) {
        if frame.status().kept() {
            self.ring.discard_long();
        }
        self.shed += 1;
    }
}

/// Returns the number of slots that flows may fill: all slots of a ring except the reserve.
fn kept(slots: usize) -> usize {
    slots - (slots / 2).min(RESERVE_MAX)
}

/// Number of slots reserved for other flows in a long ring: enough for the 1500-byte packets that arrive in 1.3 ms at
/// 10 Gb/s.
const RESERVE_MAX: usize = 1024;
/// Number of checks of the reserve per pass through the ring. More frequent checks would cost time, because the
/// kernel's write position is not in the cache.
const LOOK_SHARE: usize = 64;

#[cfg(test)]
mod tests {
    use super::kept;

    #[test]
    fn half_of_a_short_ring_is_kept_for_other_flows_and_1024_slots_of_a_long_one() {
        assert_eq!([64, 2048, 4096, 8192].map(kept), [32, 1024, 3072, 7168]);
    }
}
