//! Notices from the threads of a running path.

use grosso_io::{Notice, stage::ScarcityNotice};

/// The functions that a running path calls, from its threads.
#[derive(Clone, Debug)]
pub(crate) struct Notices {
    /// The first packet of its own tunnel came back to it.
    pub(super) looped: Notice,
    /// A route of its tunnel changed.
    pub(super) route_changed: Notice,
    /// Few sequence numbers of ESP are left, or none.
    pub(super) scarce: ScarcityNotice,
}

impl Notices {
    /// Functions that do nothing.
    #[cfg(feature = "lab")]
    pub(crate) fn none() -> Self {
        let none = Notice::new(|| ());
        let scarce = ScarcityNotice(std::sync::Arc::new(|_| ()));
        Self { looped: none.clone(), route_changed: none, scarce }
    }
}
