//! A receive ring that drops frames of greedy flows before it is full, so that other flows find room.

use grosso::fair::FairShare;
use grosso_sys::packet::{ReceiveRing, RingFrame};

/// A receive ring, with the flows of its frames when it is half full.
#[derive(Debug)]
pub(super) struct FairRing {
    pub(super) ring: ReceiveRing,
    fair: Option<Box<FairShare>>,
    /// Frames of greedy flows that were dropped.
    pub(super) shed: u64,
}

impl FairRing {
    pub(super) fn new(ring: ReceiveRing, fair: Option<FairShare>) -> Self {
        let fair = fair.map(Box::new);
        Self { ring, fair, shed: 0 }
    }

    /// Decides which frames are dropped, if the ring is at least half full, so that half of it remains.
    pub(super) fn relieve(&mut self, now_ns: u64) {
        let Self { ring, fair: Some(fair), .. } = self else { return };
        let slots = ring.layout().slots;
        let kept = slots / 2;
        if ring.peek(kept).is_none() {
            return;
        }
        while let Some(frame) = ring.peek(fair.len()) {
            fair.join(frame);
        }
        fair.shed(kept, now_ns);
    }

    /// The next frame that is not dropped.
    pub(super) fn receive(&mut self) -> Option<RingFrame> {
        loop {
            let frame = self.ring.receive()?;
            if !self.fair.as_mut().is_some_and(|fair| fair.leave()) {
                return Some(frame);
            }
            self.shed += 1;
        }
    }
}
