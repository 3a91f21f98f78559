//! Memory shared with the kernel.
//!
//! A [`Mapping`] lends references only within its bounds. Whether the program may read or write the bytes depends on
//! the protocol of the ring in the memory; the module that owns the ring must prove that this is permitted.

use core::ops::Range;
use core::ptr::{self, NonNull};
use core::sync::atomic::AtomicU32;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mmap_anonymous, mprotect, munmap};

/// Length of a guard in bytes: the largest page size of any supported machine.
const GUARD_BYTES: usize = 64 << 10;

/// Length of a cache line in bytes.
#[cfg(target_arch = "x86_64")]
const LINE_BYTES: usize = 64;

/// A mapped range of memory, page-aligned, unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    /// Number of mapped, inaccessible bytes after the memory.
    guard_bytes: usize,
}

// SAFETY: the memory belongs to no thread; concurrent access is bounded by the contracts of
// `atomic` and `slice`.
unsafe impl Send for Mapping {}
// SAFETY: the memory belongs to no thread; concurrent access is bounded by the contracts of `atomic` and `slice`.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a descriptor's memory at an offset.
    ///
    /// # Errors
    ///
    /// Returns any error from `mmap(2)`.
    pub(crate) fn of_file(file: BorrowedFd<'_>, offset: u64, bytes: usize) -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: no address is requested, so no existing mapping is replaced.
        let start = unsafe { mmap(ptr::null_mut(), bytes, access, flags, file, offset) }?;
        Self::new(start.cast(), bytes)
    }

    /// Maps new zeroed memory, which a forked child shares rather than copies, because the kernel may have pinned it.
    ///
    /// # Errors
    ///
    /// Returns any error from `mmap(2)`.
    pub(crate) fn anonymous(bytes: usize) -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: no address is requested, so no existing mapping is replaced.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), bytes, access, flags) }?;
        Self::new(start.cast(), bytes)
    }

    /// Maps new zeroed memory of at least `bytes` bytes, for results whose length the kernel chooses. The kernel cannot
    /// write beyond its end: the attempt fails with `EFAULT`.
    ///
    /// # Errors
    ///
    /// Returns any error from `mmap(2)` or `mprotect(2)`.
    pub(crate) fn guarded(bytes: usize) -> io::Result<Self> {
        let usable = bytes.next_multiple_of(GUARD_BYTES);
        let mut mapping = Self::anonymous(usable + GUARD_BYTES)?;
        let guard = mapping.pointer(usable..usable + GUARD_BYTES);
        // SAFETY: the guard is the end of this mapping, to which there is no reference yet.
        unsafe { mprotect(guard.cast(), GUARD_BYTES, MprotectFlags::empty()) }?;
        (mapping.bytes, mapping.guard_bytes) = (usable, GUARD_BYTES);
        Ok(mapping)
    }

    fn new(start: *mut u8, bytes: usize) -> io::Result<Self> {
        let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, bytes, guard_bytes: 0 })
    }

    /// Returns the start of the mapping, as a number for the kernel.
    pub(crate) fn address(&self) -> u64 {
        self.start.as_ptr().expose_provenance() as u64
    }

    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns a word that the kernel may change at any time.
    ///
    /// # Panics
    ///
    /// Panics if the offset is outside the mapping or not a multiple of four.
    #[inline]
    pub(crate) fn atomic(&self, offset: usize) -> &AtomicU32 {
        if !offset.is_multiple_of(4) {
            misaligned(offset);
        }
        self.check(&(offset..offset + 4));
        // SAFETY: the word is inside the mapping, and aligned.
        unsafe { self.atomic_unchecked(offset) }
    }

    /// Works like [`Self::atomic`], but does not check the offset.
    ///
    /// # Safety
    ///
    /// The offset must be a multiple of four, and the word must be inside the mapping.
    #[inline]
    pub(crate) unsafe fn atomic_unchecked(&self, offset: usize) -> &AtomicU32 {
        debug_assert!(offset.is_multiple_of(4) && offset + 4 <= self.bytes, "{offset}");
        // SAFETY: the caller guarantees that the offset is inside the mapping, which is one allocation.
        let word = unsafe { self.start.as_ptr().add(offset) };
        // SAFETY: the word is inside the mapping, aligned because the mapping is page-aligned, and
        // alive as long as the borrow. The contract of `slice` excludes any other access to it.
        unsafe { AtomicU32::from_ptr(word.cast()) }
    }

    /// Returns bytes that are not written during the borrow.
    ///
    /// # Safety
    ///
    /// Until the borrow ends neither the kernel nor this process may write the range.
    ///
    /// # Panics
    ///
    /// Panics if the range is not inside the mapping.
    #[inline]
    pub(crate) unsafe fn slice(&self, range: Range<usize>) -> &[u8] {
        self.check(&range);
        // SAFETY: the range is inside the mapping, and the caller guarantees that it is not written.
        unsafe { self.slice_unchecked(range) }
    }

    /// Works like [`Self::slice`], but does not check the range.
    ///
    /// # Safety
    ///
    /// The caller must meet the requirements of [`Self::slice`]. In addition, the range must be inside the mapping.
    #[inline]
    pub(crate) unsafe fn slice_unchecked(&self, range: Range<usize>) -> &[u8] {
        debug_assert!(self.holds(&range), "{range:?}");
        // SAFETY: the caller guarantees that the range is inside the mapping, which is one allocation.
        let start = unsafe { self.start.as_ptr().add(range.start) };
        // SAFETY: the range is inside the mapping, whose bytes the kernel has initialized, and the caller guarantees
        // that it is not written.
        unsafe { core::slice::from_raw_parts(start, range.end - range.start) }
    }

    /// Returns bytes that belong to the caller alone during the borrow.
    ///
    /// # Safety
    ///
    /// Until the borrow ends, nothing else may read or write the range, including the kernel.
    ///
    /// # Panics
    ///
    /// Panics if the range is not inside the mapping.
    #[expect(clippy::mut_from_ref, reason = "several owners hold disjoint parts of one mapping")]
    #[inline]
    pub(crate) unsafe fn slice_mut(&self, range: Range<usize>) -> &mut [u8] {
        let (start, bytes) = (self.pointer(range.clone()), range.len());
        // SAFETY: the range is inside the mapping, and the caller guarantees that it belongs to the caller alone.
        unsafe { core::slice::from_raw_parts_mut(start, bytes) }
    }

    /// Prefetches `LINES` cache lines that will be read soon, starting at an offset. Lines outside the mapping do no
    /// harm.
    #[inline]
    pub(crate) fn fetch<const LINES: usize>(&self, offset: usize) {
        #[cfg(target_arch = "x86_64")]
        for line in 0..LINES {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let start = self.start.as_ptr().cast::<i8>().wrapping_add(offset);
            // SAFETY: this is only a hint about an address and never faults.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(line * LINE_BYTES)) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = offset;
    }

    #[inline]
    fn holds(&self, range: &Range<usize>) -> bool {
        range.start <= range.end && range.end <= self.bytes
    }

    #[inline]
    fn check(&self, range: &Range<usize>) {
        if !self.holds(range) {
            outside(range, self.bytes);
        }
    }

    #[inline]
    fn pointer(&self, range: Range<usize>) -> *mut u8 {
        self.check(&range);
        // SAFETY: the start is inside the mapping, which is one allocation, or at its end.
        unsafe { self.start.as_ptr().add(range.start) }
    }
}

// The panics are in separate functions, so that the code that checks the bounds is short enough to be inlined into
// every reader of a ring.
#[cold]
#[inline(never)]
fn outside(range: &Range<usize>, bytes: usize) -> ! {
    panic!("{range:?} is outside a mapping of {bytes} bytes");
}

#[cold]
#[inline(never)]
fn misaligned(offset: usize) -> ! {
    panic!("misaligned word at {offset}");
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is the mapped one, and every reference into it borrowed `self`.
        let result = unsafe { munmap(self.start.as_ptr().cast(), self.bytes + self.guard_bytes) };
        debug_assert!(result.is_ok(), "{result:?}");
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn fresh_memory_is_zero_and_remembers() {
        let mapping = Mapping::anonymous(8192).unwrap();
        assert_eq!(mapping.bytes(), 8192);
        mapping.atomic(8188).store(7, Ordering::Release);
        // SAFETY: this test is the only owner of the mapping.
        let bytes = unsafe { mapping.slice(8180..8192) };
        assert_eq!(bytes[..8], [0; 8]);
        assert_eq!(bytes[8..], 7_u32.to_ne_bytes());
    }

    #[test]
    fn the_kernel_cannot_write_behind_a_guarded_mapping() {
        let mapping = Mapping::guarded(100).unwrap();
        let zeros = std::fs::File::open("/dev/zero").unwrap();
        let read = |bytes: usize| {
            let start = mapping.start.as_ptr().cast();
            // SAFETY: the kernel writes into the mapping, or fails where the guard page begins.
            unsafe { libc::read(std::os::fd::AsRawFd::as_raw_fd(&zeros), start, bytes) }
        };
        assert_eq!(read(mapping.bytes()), mapping.bytes() as isize);
        assert!(read(mapping.bytes() + 1) <= mapping.bytes() as isize);
        assert_eq!(mapping.bytes(), GUARD_BYTES);
    }

    #[test]
    #[should_panic(expected = "outside a mapping")]
    fn a_word_beyond_the_end_is_refused() {
        Mapping::anonymous(4096).unwrap().atomic(4096);
    }
}
