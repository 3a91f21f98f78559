//! Packet memory that the kernel and the program share through AF_XDP. It is divided into chunks of equal size.
//!
//! **One owner per chunk.** A chunk is always in exactly one of three places: in the list of free chunks, in a
//! [`Frame`], or with the kernel. It changes owner only here and in the socket:
//!
//! * from free to a frame: [`Region::allocate`], which takes it off the list;
//! * from a frame to free: when the frame is dropped;
//! * from free or a frame to the kernel: the socket takes the number of the chunk, marks the chunk as the kernel's, and
//!   writes it into a ring;
//! * from the kernel: the socket takes back a chunk only if it is marked, and clears the mark. A chunk number that the
//!   kernel returns twice, or that it never owned, is counted and ignored.
//!
//! No other code has the number of a frame's chunk, so the frame may return references to its bytes.

use core::ops::Range;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::mapping::Mapping;

/// Placeholder for the number of a chunk that was given to the kernel.
const GONE: u32 = u32::MAX;

/// The packet memory of one socket, divided into chunks.
#[derive(Debug)]
pub(super) struct Region {
    mapping: Mapping,
    chunk_bytes: usize,
    chunks: u32,
    free: Mutex<Vec<u32>>,
}

impl Region {
    /// Maps memory for the chunks. All chunks are free at first.
    pub(super) fn new(chunk_bytes: usize, chunks: u32) -> io::Result<Arc<Self>> {
        let bytes = chunk_bytes.checked_mul(chunks as usize).ok_or(io::ErrorKind::InvalidInput)?;
        let mapping = Mapping::anonymous(bytes)?;
        // The lowest numbers are taken first, so the list is built from its end.
        let free = Mutex::new((0..chunks).rev().collect());
        Ok(Arc::new(Self { mapping, chunk_bytes, chunks, free }))
    }

    /// Returns a free chunk as an empty frame.
    pub(super) fn allocate(self: &Arc<Self>) -> Option<Frame> {
        let chunk = self.free().pop()?;
        Some(Frame { region: Arc::clone(self), chunk, start: 0, length: 0, continues: false })
    }

    /// Returns the numbers of the free chunks. Taking a number off the list takes ownership of the chunk; only the
    /// owner may put it back.
    pub(super) fn free(&self) -> MutexGuard<'_, Vec<u32>> {
        // The list is always consistent: `push` cannot allocate, because the list has room for all chunks.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a frame in a chunk that the caller owns, at an address in the region. If the range extends beyond the
    /// chunk, the chunk is freed.
    pub(super) fn frame(
        self: &Arc<Self>,
        address: u64,
        length: u32,
        continues: bool,
    ) -> Option<Frame> {
        let (chunk, start) = self.locate(address)?;
        let mut frame = Frame { region: Arc::clone(self), chunk, start: 0, length: 0, continues };
        frame.set_range(start, length as usize).ok()?;
        Some(frame)
    }

    /// Returns the chunk that contains an address, and the offset within that chunk.
    pub(super) fn locate(&self, address: u64) -> Option<(u32, usize)> {
        let address = usize::try_from(address).ok()?;
        let chunk = u32::try_from(address / self.chunk_bytes).ok()?;
        (chunk < self.chunks).then_some((chunk, address % self.chunk_bytes))
    }

    pub(super) fn address_of(&self, chunk: u32) -> u64 {
        u64::from(chunk) * self.chunk_bytes as u64
    }

    pub(super) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    pub(super) fn chunk_bytes(&self) -> usize {
        self.chunk_bytes
    }

    pub(super) fn chunks(&self) -> u32 {
        self.chunks
    }
}

/// A packet, or a part of one, in a chunk of shared memory that the frame exclusively owns. Dropping the frame frees
/// the chunk for the kernel.
#[derive(Debug)]
pub struct Frame {
    region: Arc<Region>,
    chunk: u32,
    start: u32,
    length: u32,
    continues: bool,
}

/// Error returned if a range extends beyond its chunk, or if bytes do not fit in a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    /// Length of a chunk in bytes.
    pub chunk_bytes: usize,
}

impl core::fmt::Display for TooLong {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "the data does not fit into a chunk of {} bytes", self.chunk_bytes)
    }
}

impl std::error::Error for TooLong {}

impl Frame {
    /// Fills the frame with the bytes of `parts`, from the start of the chunk.
    ///
    /// # Errors
    ///
    /// Returns [`TooLong`] if the parts exceed the chunk; the frame is then unchanged.
    pub fn fill(&mut self, parts: &[IoSlice<'_>]) -> Result<(), TooLong> {
        let sum = parts.iter().try_fold(0_usize, |sum, part| sum.checked_add(part.len()));
        self.set_range(0, sum.unwrap_or(usize::MAX))?;
        let mut rest = self.as_mut();
        for part in parts {
            let (here, after) = rest.split_at_mut(part.len());
            here.copy_from_slice(part);
            rest = after;
        }
        Ok(())
    }

    /// Moves the bounds of the frame within its chunk, to remove headers or make room for headers. Bytes that enter the
    /// range have unspecified contents.
    ///
    /// # Errors
    ///
    /// Returns [`TooLong`] if the range extends beyond the chunk; the frame is then unchanged.
    pub fn set_range(&mut self, start: usize, length: usize) -> Result<(), TooLong> {
        let chunk_bytes = self.region.chunk_bytes;
        if start.checked_add(length).is_none_or(|end| end > chunk_bytes) {
            return Err(TooLong { chunk_bytes });
        }
        // A chunk is at most a page, so both values fit.
        (self.start, self.length) = (start as u32, length as u32);
        Ok(())
    }

    /// Sets whether the packet continues in the next frame.
    pub fn set_continues(&mut self, continues: bool) {
        self.continues = continues;
    }

    /// Returns whether the packet continues in the next frame.
    pub fn continues(&self) -> bool {
        self.continues
    }

    /// Returns the offset of the frame in its chunk: this many bytes can be prepended.
    pub fn headroom(&self) -> usize {
        self.start as usize
    }

    /// Transfers ownership of the chunk to the kernel, and returns its number, its address and the length of the frame.
    pub(super) fn give_away(mut self) -> (u32, u64, u32) {
        let chunk = core::mem::replace(&mut self.chunk, GONE);
        (chunk, self.region.address_of(chunk) + u64::from(self.start), self.length)
    }

    pub(super) fn is_of(&self, region: &Arc<Region>) -> bool {
        Arc::ptr_eq(&self.region, region)
    }

    fn range(&self) -> Range<usize> {
        let start = self.chunk as usize * self.region.chunk_bytes + self.start as usize;
        start..start + self.length as usize
    }
}

impl AsRef<[u8]> for Frame {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the range is in the chunk that this frame alone owns, and writing requires `&mut
        // self`.
        unsafe { self.region.mapping.slice(self.range()) }
    }
}

impl AsMut<[u8]> for Frame {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: the range is in the chunk that this frame alone owns, and the frame is borrowed
        // mutably.
        unsafe { self.region.mapping.slice_mut(self.range()) }
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        if self.chunk != GONE {
            self.region.free().push(self.chunk);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_chunk_has_one_owner_and_comes_back() {
        let region = Region::new(2048, 8).unwrap();
        let mut frames: Vec<Frame> = core::iter::from_fn(|| region.allocate()).collect();
        assert_eq!(frames.len(), 8);
        for (i, frame) in frames.iter_mut().enumerate() {
            frame.fill(&[IoSlice::new(&[i as u8; 2000]), IoSlice::new(&[0xff; 48])]).unwrap();
        }
        for (i, frame) in frames.iter().enumerate() {
            assert_eq!(
                (&frame.as_ref()[..2000], &frame.as_ref()[2000..]),
                (&[i as u8; 2000][..], &[0xff; 48][..])
            );
        }
        assert!(region.allocate().is_none());
        let (chunk, address, length) = frames.remove(3).give_away();
        assert_eq!((chunk, address, length), (3, 3 * 2048, 2048));
        assert!(region.allocate().is_none(), "the chunk given away is not free");
        drop(frames);
        assert_eq!(region.free().len(), 7);
    }

    #[test]
    fn a_range_that_leaves_the_chunk_is_refused() {
        let region = Region::new(2048, 2).unwrap();
        let mut frame = region.allocate().unwrap();
        frame.set_range(100, 1948).unwrap();
        assert_eq!((frame.headroom(), frame.as_ref().len()), (100, 1948));
        for (start, length) in [(101, 1948), (0, 2049), (usize::MAX, 2), (2, usize::MAX)] {
            assert!(frame.set_range(start, length).is_err(), "{start} {length}");
        }
        assert!(frame.fill(&[IoSlice::new(&[0; 2049])]).is_err());
        assert_eq!(frame.as_ref().len(), 1948, "a refused call changes nothing");
    }

    #[test]
    fn an_address_outside_is_nowhere_and_a_bad_length_frees_the_chunk() {
        let region = Region::new(2048, 2).unwrap();
        assert_eq!(region.locate(2048 + 256), Some((1, 256)));
        assert_eq!(region.locate(4096), None);
        assert_eq!(region.locate(u64::MAX), None);
        let owned = region.free().pop().unwrap();
        assert!(region.frame(region.address_of(owned) + 1000, 1049, false).is_none());
        assert_eq!(region.free().len(), 2);
    }
}
