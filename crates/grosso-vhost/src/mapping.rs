//! Maps another program's file into memory, starting at the beginning of the file.

use core::ptr::{self, NonNull};
use std::{io, os::fd::AsFd};

use rustix::{
    fs::{fcntl_get_seals, fstat},
    mm::{MapFlags, ProtFlags, mmap, munmap},
};

use crate::sigbus::Watched;

/// Mapped bytes of a file, which any program may change at any time.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    watched: Watched,
}

// SAFETY: the memory is not bound to a thread, and all accesses use atomic words or raw copies.
unsafe impl Send for Mapping {}
// SAFETY: the memory is not bound to a thread, and all accesses use atomic words or raw copies.
unsafe impl Sync for Mapping {}

/// Returns how many bytes from the beginning of a file must be mapped to include a part of it. The number is rounded up
/// to the file's page size, because a huge page can only be unmapped or replaced as a whole. The part itself need not
/// begin or end at a page boundary.
///
/// # Errors
/// Returns [`io::ErrorKind::InvalidInput`] for a file that is not in RAM, or ends before the part does.
pub(crate) fn whole(file: &impl AsFd, offset: u64, bytes: u64) -> io::Result<u64> {
    // Only files in memory have seals. With other files, querying the length or accessing a page may block
    // indefinitely.
    fcntl_get_seals(file).map_err(|_| {
        invalid("the backing file is not in memory (expected memfd, tmpfs or hugetlbfs)")
    })?;
    let facts = fstat(file)?;
    let file_bytes = u64::try_from(facts.st_size).unwrap_or(0);
    let end = offset.checked_add(bytes).filter(|end| *end <= file_bytes);
    let end = end.ok_or_else(|| invalid("the backing file is too short"))?;
    let page = u64::try_from(facts.st_blksize).ok().filter(|page| page.is_power_of_two());
    end.checked_next_multiple_of(page.unwrap_or(1))
        .ok_or_else(|| invalid("the backing file is too long"))
}

impl Mapping {
    /// Maps the first `whole` bytes of a file.
    pub(crate) fn new(file: &impl AsFd, whole: u64) -> io::Result<Self> {
        let bytes = usize::try_from(whole).map_err(|_| {
            invalid(format!("{whole} bytes of memory exceed the address space of this machine"))
        })?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: no address is requested, so no existing mapping is replaced.
        let start =
            unsafe { mmap(ptr::null_mut(), bytes, access, MapFlags::SHARED, file.as_fd(), 0) }?;
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        match Watched::new(start, bytes) {
            Ok(watched) => Ok(Self { start, bytes, watched }),
            Err(error) => {
                // SAFETY: this mapping has no users yet.
                let _ = unsafe { munmap(start.as_ptr().cast(), bytes) };
                Err(error)
            }
        }
    }

    /// Returns the address of `bytes` bytes at offset `at`.
    ///
    /// # Panics
    /// Panics if the range is outside the mapping, which callers prevent.
    #[inline]
    pub(crate) fn part(&self, at: usize, bytes: usize) -> NonNull<u8> {
        let is_inside = at.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        assert!(is_inside, "the range is outside a mapped file");
        // SAFETY: the result is inside the mapping, or just after its end.
        unsafe { self.start.add(at) }
    }

    /// Returns whether the file was truncated, so that part of the mapping is gone.
    pub(crate) fn is_lost(&self) -> bool {
        self.watched.is_lost()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.watched.end();
        // SAFETY: this value owns the mapping, and no `Place` in it is left, because a `Place` keeps the mapping alive.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Returns an `InvalidInput` error with this reason.
pub(crate) fn invalid(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why.into())
}

/// Maximum size in bytes of the mapped files of a guest's memory: 1 TiB. A front end can create large sparse files at
/// no cost, but mapping them costs this program address space and page tables.
pub const MAPPED_BYTES_MAX: u64 = 1 << 40;
