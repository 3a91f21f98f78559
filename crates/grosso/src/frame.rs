//! A packet: its bytes, and beside them what is known about it.

use crate::meta::Meta;

/// One packet in one buffer.
///
/// The buffer is whatever the caller has: a `Vec<u8>`, a descriptor of a ring, a slice of a mapped
/// file. The engine never copies its payload, holds it at most as long as the limits say, and hands
/// every one back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<B> {
    /// The bytes, from the first byte of the link layer on.
    pub buffer: B,
    /// What is known about them.
    pub meta: Meta,
}

impl<B> Frame<B> {
    /// A frame about which nothing is known.
    pub fn new(buffer: B) -> Self {
        Self { buffer, meta: Meta::default() }
    }
}
