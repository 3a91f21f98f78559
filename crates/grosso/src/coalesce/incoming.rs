//! A packet as it comes.

use crate::{frame::Frame, meta::Meta};

/// A packet that was just pushed, whose metadata are still where the caller has them.
#[derive(Debug)]
pub(super) struct Incoming<'a, B> {
    pub(super) buffer: B,
    pub(super) meta: &'a Meta,
    /// Time at which it was pushed.
    pub(super) now_ns: u64,
}

impl<B: AsRef<[u8]>> Incoming<'_, B> {
    /// Its bytes.
    #[inline(always)]
    pub(super) fn bytes(&self) -> &[u8] {
        self.buffer.as_ref()
    }

    #[inline(always)]
    pub(super) fn into_frame(self) -> Frame<B> {
        Frame { buffer: self.buffer, meta: *self.meta }
    }
}
