//! The buffers that the descriptors of a chain point to.

use std::sync::Arc;

use super::{ChainFault, HEADER_BYTES_MAX};
use crate::{
    memory::Memory,
    vring::{DESCRIPTOR_BYTES, Descriptor, IS_WRITTEN},
};

/// A buffer that a descriptor points to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) address: u64,
    pub(crate) bytes: usize,
}

/// Buffers of the current chains.
#[derive(Debug)]
pub(super) struct Pieces {
    memory: Arc<Memory>,
    all: Vec<Piece>,
    /// Whether the device writes the buffers.
    pub(super) is_written: bool,
    /// Number of descriptors read since the last query.
    pub(super) walked: usize,
}

impl Pieces {
    pub(super) fn new(memory: &Arc<Memory>) -> Self {
        Self { memory: Arc::clone(memory), all: Vec::new(), is_written: false, walked: 0 }
    }

    /// Removes all buffers and sets the direction of the next ones.
    pub(super) fn begin(&mut self, is_written: bool) {
        self.all.clear();
        self.is_written = is_written;
    }

    /// Adds a buffer to a chain of `before` bytes and returns the new length.
    pub(super) fn add(&mut self, descriptor: Descriptor, before: u32) -> Result<u32, ChainFault> {
        self.walked += 1;
        let Descriptor { address, bytes, .. } = descriptor;
        let length = before.checked_add(bytes).ok_or(ChainFault::Length)?;
        let bytes = bytes as usize;
        if descriptor.has(IS_WRITTEN) != self.is_written {
            return Err(ChainFault::Direction);
        }
        // Readable buffers are checked when they are copied; writable buffers are checked now, so that no frame is only
        // partly written.
        if self.is_written && !self.memory.has(address, bytes) {
            return Err(ChainFault::Outside);
        }
        if self.all.len() >= PIECES_MAX {
            return Err(ChainFault::Endless);
        }
        self.all.push(Piece { address, bytes });
        Ok(length)
    }

    /// Returns the number of descriptors in an indirect table, at least one.
    pub(super) fn entries(table: Descriptor) -> Result<usize, ChainFault> {
        let length = table.bytes as usize;
        let entries = length / DESCRIPTOR_BYTES;
        if !length.is_multiple_of(DESCRIPTOR_BYTES) || entries == 0 {
            return Err(ChainFault::Table);
        }
        Ok(entries)
    }

    /// Returns the words of a descriptor in an indirect table.
    pub(super) fn entry(&self, table: Descriptor, number: usize) -> Result<[u64; 2], ChainFault> {
        let mut words = [0; DESCRIPTOR_BYTES];
        let at = table.address.checked_add((number * DESCRIPTOR_BYTES) as u64);
        if !at.is_some_and(|at| self.memory.read_headed(at, &mut words, DESCRIPTOR_BYTES)) {
            return Err(ChainFault::Outside);
        }
        let word = |at: usize| words[at..].first_chunk().copied().map_or(0, u64::from_le_bytes);
        Ok([word(0), word(8)])
    }

    /// Copies a frame of `bytes` bytes out of the buffers.
    pub(super) fn copy(&self, bytes: usize, into: &mut [u8]) -> Result<(), ChainFault> {
        let mut rest = into.get_mut(..bytes).ok_or(ChainFault::TooLong)?;
        let mut header = HEADER_BYTES_MAX;
        for piece in &self.all {
            let (part, behind) = rest.split_at_mut(piece.bytes.min(rest.len()));
            if !self.memory.read_headed(piece.address, part, header) {
                return Err(ChainFault::Outside);
            }
            header = header.saturating_sub(part.len());
            rest = behind;
        }
        Ok(())
    }

    /// Copies consecutive parts into the buffers, which must have room.
    pub(super) fn fill<'a>(&self, parts: impl Iterator<Item = &'a [u8]>) -> bool {
        fill(&self.memory, &self.all, parts)
    }

    /// Prefetches a frame that will be received soon; its bytes are usually in the cache of the CPU that wrote them.
    #[inline]
    pub(super) fn fetch(&self, address: u64) {
        self.memory.fetch(address);
    }
}

/// Copies the parts of a frame consecutively into buffers, which must have room.
pub(crate) fn fill<'a>(
    memory: &Memory,
    pieces: &[Piece],
    parts: impl Iterator<Item = &'a [u8]>,
) -> bool {
    let mut pieces = pieces.iter().copied();
    let mut piece = Piece { address: 0, bytes: 0 };
    let mut header = HEADER_BYTES_MAX;
    for mut part in parts {
        while !part.is_empty() {
            while piece.bytes == 0 {
                let Some(next) = pieces.next() else { return false };
                piece = next;
            }
            let (now, rest) = part.split_at(piece.bytes.min(part.len()));
            if !memory.write_headed(piece.address, now, header) {
                return false;
            }
            header = header.saturating_sub(now.len());
            piece.address = piece.address.wrapping_add(now.len() as u64);
            piece.bytes -= now.len();
            part = rest;
        }
    }
    true
}

/// Maximum number of descriptors per frame, in any number of chains: a 64 KiB superframe needs 17 if its buffers are
/// whole pages, and only a few more if they are socket page fragments. Empty descriptors also count, because a guest
/// could use millions of them.
pub const PIECES_MAX: usize = 1024;
