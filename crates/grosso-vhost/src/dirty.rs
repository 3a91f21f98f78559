//! The dirty log, which records the pages of a guest's memory that the device has written. A front end reads it while
//! it migrates the guest to another host (vhost-user, "Migration").

use core::sync::atomic::{AtomicU8, Ordering};
use std::{io, os::fd::AsFd};

use crate::mapping::{MAPPED_BYTES_MAX, Mapping, invalid, whole};

/// A log with one bit for each page of guest memory. The log is in memory shared with the front end, which clears the
/// bits that it has read.
#[derive(Debug)]
pub(crate) struct DirtyLog {
    mapping: Mapping,
    /// Offset of the log in the mapping.
    offset: usize,
    bytes: usize,
}

impl DirtyLog {
    /// Maps `bytes` bytes of a file.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::InvalidInput`] for a file that is not in RAM or is too short, and for more than
    /// [`MAPPED_BYTES_MAX`], or any error from `mmap(2)`.
    pub(crate) fn map(file: &impl AsFd, offset: u64, bytes: u64) -> io::Result<Self> {
        let wrong = |why| invalid(format!("invalid dirty log of {bytes} bytes: {why}"));
        let mapped = whole(file, offset, bytes).map_err(|why| wrong(why.to_string()))?;
        if bytes == 0 || mapped > MAPPED_BYTES_MAX {
            return Err(wrong(format!("expected 1 to {MAPPED_BYTES_MAX} bytes")));
        }
        let number = |value| usize::try_from(value).map_err(io::Error::other);
        Ok(Self {
            mapping: Mapping::new(file, mapped)?,
            offset: number(offset)?,
            bytes: number(bytes)?,
        })
    }

    /// Returns whether the log has a bit for each page below an address.
    pub(crate) fn covers(&self, end: u64) -> bool {
        end.div_ceil(PAGE_BYTES * 8) <= self.bytes as u64
    }

    /// Marks the pages of a written range, which must be [covered](Self::covers).
    pub(crate) fn mark(&self, guest: u64, bytes: usize) {
        let Some(last) = (bytes as u64).checked_sub(1).and_then(|more| guest.checked_add(more))
        else {
            return;
        };
        for page in guest / PAGE_BYTES..=last / PAGE_BYTES {
            let byte = self.mapping.part(self.offset + (page / 8) as usize, 1);
            // SAFETY: the byte is mapped, and all references to it are to atomic words.
            let byte = unsafe { byte.cast::<AtomicU8>().as_ref() };
            // The bit is written even if it is already set, because the front end may be about to clear it and to copy
            // the old content of the page. If the front end sees the bit, it also sees the write.
            byte.fetch_or(1 << (page % 8), Ordering::Release);
        }
    }

    /// Returns whether the file was truncated, so that part of the mapping is gone.
    pub(crate) fn is_lost(&self) -> bool {
        self.mapping.is_lost()
    }
}

/// Page size of the log in bytes, regardless of the guest's page size.
const PAGE_BYTES: u64 = 4096;
