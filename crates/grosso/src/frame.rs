//! A packet: its bytes and their metadata.

use crate::meta::Meta;

/// One packet in one buffer.
///
/// The buffer is of the caller's type: a `Vec<u8>`, a descriptor of a ring, a slice of a mapped file. The engine never
/// copies its payload, holds it no longer than the limits say, and returns every buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Buffers come first: copied with the metadata in vectors and read alone right behind, they are vectors of the same
// places, which the processor forwards from its store buffer.
#[repr(C)]
pub struct Frame<B> {
    /// The bytes, from the first byte of the link layer on.
    pub buffer: B,
    /// Metadata of the bytes.
    pub meta: Meta,
}

impl<B> Frame<B> {
    /// A frame with empty metadata.
    pub fn new(buffer: B) -> Self {
        Self { buffer, meta: Meta::default() }
    }
}
