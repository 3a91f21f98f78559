//! Dirty log: the pages of a guest's memory that the device has written, of which a front end asks while it copies the
//! memory to another machine, on which the guest goes on (vhost-user, "Migration").

use core::sync::atomic::{AtomicU8, Ordering};
use std::{io, os::fd::AsFd};

use crate::mapping::{MAPPED_BYTES_MAX, Mapping, invalid, whole};

/// A bit for each page of a guest's addresses, in memory that the front end has too: it clears those that it has seen.
#[derive(Debug)]
pub(crate) struct DirtyLog {
    mapping: Mapping,
    /// Its start in the mapping.
    offset: usize,
    bytes: usize,
}

impl DirtyLog {
    /// Maps so many bytes of a file.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for a file that is not in memory or too short, and more than
    /// [`MAPPED_BYTES_MAX`]; errors from `mmap(2)`.
    pub(crate) fn map(file: &impl AsFd, offset: u64, bytes: u64) -> io::Result<Self> {
        let wrong = |why| invalid(format!("a dirty log of {bytes} bytes: {why}"));
        let mapped = whole(file, offset, bytes).map_err(|why| wrong(why.to_string()))?;
        if bytes == 0 || mapped > MAPPED_BYTES_MAX {
            return Err(wrong(format!("there can be 1 to {MAPPED_BYTES_MAX}")));
        }
        let number = |value| usize::try_from(value).map_err(io::Error::other);
        Ok(Self {
            mapping: Mapping::new(file, mapped)?,
            offset: number(offset)?,
            bytes: number(bytes)?,
        })
    }

    /// Whether it has a bit for each page in front of an address.
    pub(crate) fn covers(&self, end: u64) -> bool {
        end.div_ceil(PAGE_BYTES * 8) <= self.bytes as u64
    }

    /// Records bytes that were written at an address, which is in front of one that it [covers](Self::covers).
    pub(crate) fn mark(&self, guest: u64, bytes: usize) {
        let Some(last) = (bytes as u64).checked_sub(1).and_then(|more| guest.checked_add(more))
        else {
            return;
        };
        for page in guest / PAGE_BYTES..=last / PAGE_BYTES {
            let byte = self.mapping.part(self.offset + (page / 8) as usize, 1);
            // SAFETY: it is a mapped byte, to which there are no references but those of atomic words.
            let byte = unsafe { byte.cast::<AtomicU8>().as_ref() };
            // A bit that is set already is set again, because the front end may be about to clear it and to copy the
            // page as it was before. Who sees the bit sees what was written.
            byte.fetch_or(1 << (page % 8), Ordering::Release);
        }
    }

    /// Whether the file became shorter, so that a part of it is gone.
    pub(crate) fn is_lost(&self) -> bool {
        self.mapping.is_lost()
    }
}

/// Bytes of a page of the log, whatever the guest's own pages are.
const PAGE_BYTES: u64 = 4096;
