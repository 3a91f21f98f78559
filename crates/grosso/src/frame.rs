//! Packets: their bytes and metadata.

use crate::meta::Meta;

/// One frame: a buffer with its metadata.
///
/// The caller chooses the buffer type: for example a `Vec<u8>`, a ring descriptor, or a slice of a mapped file. The
/// engine never copies the payload, holds a buffer no longer than the limits allow, and returns every buffer.
///
/// ```
/// use grosso::Frame;
///
/// let frame = Frame::new(vec![0u8; 60]);
/// assert_eq!(frame.meta.gso, None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// The buffer comes first. If both fields are copied as vectors and only the buffer is read right afterwards, the load
// then starts at the address of a vector store, so the CPU can forward the value from its store buffer.
#[repr(C)]
pub struct Frame<B> {
    /// Bytes of the frame, starting with the link-layer header.
    pub buffer: B,
    /// Metadata of the frame.
    pub meta: Meta,
}

impl<B> Frame<B> {
    /// Creates a frame with empty metadata.
    pub fn new(buffer: B) -> Self {
        Self { buffer, meta: Meta::default() }
    }
}
