//! A pushed packet.

use crate::{frame::Frame, meta::Meta};

/// Packet that was just pushed. Its metadata is still in the caller's memory.
#[derive(Debug)]
pub(crate) struct RxPacket<'a, B> {
    pub(crate) buffer: B,
    pub(crate) meta: &'a Meta,
    /// Time of the push.
    pub(crate) now_ns: u64,
}

impl<B: AsRef<[u8]>> RxPacket<'_, B> {
    /// Returns the bytes of the packet.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> &[u8] {
        self.buffer.as_ref()
    }

    #[inline(always)]
    pub(crate) fn into_frame(self) -> Frame<B> {
        Frame { buffer: self.buffer, meta: *self.meta }
    }
}
