//! Detects outer packets of a tunnel that enter the same tunnel again, because the route to its remote address leads
//! into the tunnel.

use grosso::tunnel::LoopGuard;
use grosso_wire::LinkType;

use crate::notice::Notice;

/// Filter for the stage's own outer packets, which would otherwise be encapsulated again and again.
#[derive(Debug)]
pub(super) struct OwnPackets {
    guard: LoopGuard,
    /// Notice to send when the first frame is dropped.
    notice: Option<Notice>,
    /// Number of frames dropped.
    pub(super) dropped: u64,
}

impl OwnPackets {
    pub(super) fn new(guard: LoopGuard, notice: Option<Notice>) -> Self {
        Self { guard, notice, dropped: 0 }
    }

    /// Returns whether a frame must be dropped, and counts it.
    #[inline]
    pub(super) fn drops(&mut self, slices: &[&[u8]], link: LinkType, now_ns: u64) -> bool {
        let head = slices.first().copied().unwrap_or_default();
        let is_own = self.guard.is_own(head, link, now_ns);
        if is_own {
            self.drop_one();
        }
        is_own
    }

    #[cold]
    fn drop_one(&mut self) {
        self.dropped += 1;
        if let Some(notice) = self.notice.take() {
            notice.send();
        }
    }
}
