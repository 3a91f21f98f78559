//! Notices from the threads of a running path.

use grosso_io::Notice;

/// The functions that a running path calls, from its threads.
#[derive(Clone, Debug)]
pub(crate) struct Notices {
    /// The first packet of its own tunnel came back to it.
    pub(super) looped: Notice,
    /// A route of its tunnel changed.
    pub(super) route_changed: Notice,
}

impl Notices {
    /// Functions that do nothing.
    #[cfg(feature = "lab")]
    pub(crate) fn none() -> Self {
        let none = Notice::new(|| ());
        Self { looped: none.clone(), route_changed: none }
    }
}
