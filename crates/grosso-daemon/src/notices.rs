//! Notices from the threads of a running path.

use std::sync::mpsc::Sender;

use grosso_io::{Notice, stage::ScarcityNotice};

use super::events::Event;

/// The functions that a running path calls, from its threads.
#[derive(Clone, Debug)]
pub struct Notices {
    /// The first packet of its own tunnel came back to it.
    pub(super) looped: Notice,
    /// A route of its tunnel changed.
    pub(super) route_changed: Notice,
    /// Few sequence numbers of ESP are left, or none.
    pub(super) scarce: ScarcityNotice,
    /// The queue for notes about what the path found while it started.
    pub(super) notes: Option<Sender<Event>>,
}

impl Notices {
    /// Returns notices that do nothing.
    pub fn none() -> Self {
        let none = Notice::new(|| ());
        let scarce = ScarcityNotice(std::sync::Arc::new(|_| ()));
        Self { looped: none.clone(), route_changed: none, scarce, notes: None }
    }

    /// Shows a note about the path.
    pub(super) fn note(&self, note: String) {
        // The receiver may be gone.
        let _ = self.notes.as_ref().map(|notes| notes.send(Event::Note(note)));
    }
}
