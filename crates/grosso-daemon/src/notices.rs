//! Notices that the threads of a running path send.

use std::sync::mpsc::Sender;

use grosso_io::{Notice, stage::ScarcityNotice};

use super::events::Event;

/// Callbacks that the threads of a running path call.
#[derive(Clone, Debug)]
pub struct Notices {
    /// Called when the path first receives a packet that its own tunnel has sent.
    pub(super) looped: Notice,
    /// Called when a route of the path's tunnel changes.
    pub(super) route_changed: Notice,
    /// Called when few ESP sequence numbers are left, or none.
    pub(super) scarce: ScarcityNotice,
    /// Queue for notes about problems that the path finds while it starts.
    pub(super) notes: Option<Sender<Event>>,
}

impl Notices {
    /// Returns notices that do nothing.
    pub fn none() -> Self {
        let none = Notice::new(|| ());
        let scarce = ScarcityNotice(std::sync::Arc::new(|_| ()));
        Self { looped: none.clone(), route_changed: none, scarce, notes: None }
    }

    /// Sends a note about the path to the user.
    pub(super) fn note(&self, note: String) {
        // The receiver may have been dropped.
        let _ = self.notes.as_ref().map(|notes| notes.send(Event::Note(note)));
    }
}
