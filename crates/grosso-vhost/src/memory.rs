//! A guest's mapped memory, which another program may change at any time.
//!
//! The code creates no references to this memory except to atomic words. Rings, descriptor tables and virtio headers
//! are accessed as atomic words. The payload of a frame is copied once as bytes, so later changes by the guest have no
//! effect. Formally, a guest that writes during the copy causes a data race, but no decision depends on the bytes
//! before they are in this process's memory (ADR 0211).

use core::{
    ptr::{self, NonNull},
    sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering},
};
use std::{io, os::fd::AsFd, sync::Arc};

pub use crate::mapping::MAPPED_BYTES_MAX;
use crate::{
    dirty::DirtyLog,
    mapping::{Mapping, invalid, whole},
};

/// Region of a guest's memory, as described by the front end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionPlace {
    /// Address of the region in the guest.
    pub guest: u64,
    /// Length of the region in bytes.
    pub bytes: u64,
    /// Address of the region in the front end's process.
    pub user: u64,
    /// Offset of the region in the file.
    pub offset: u64,
}

impl RegionPlace {
    /// Returns how many bytes from the beginning of the region's file must be mapped.
    fn whole(&self, file: &impl AsFd) -> io::Result<u64> {
        let Self { guest, bytes, user, offset } = *self;
        let wrong =
            |why: String| invalid(format!("invalid region of {bytes} bytes at {guest:#x}: {why}"));
        let mapped = whole(file, offset, bytes).map_err(|why| wrong(why.to_string()))?;
        let wraps = [guest, user].iter().any(|start| start.checked_add(bytes).is_none());
        if bytes == 0 || wraps {
            return Err(wrong(
                "the region is empty, or wraps around the end of the address space".into(),
            ));
        }
        Ok(mapped)
    }
}

/// A guest's memory. It stays mapped as long as a [`Place`] in it exists.
#[derive(Debug)]
pub struct Memory {
    regions: Vec<Region>,
    /// Dirty log, or `None` while logging is disabled.
    dirty: Option<Arc<DirtyLog>>,
}

#[derive(Debug)]
struct Region {
    place: RegionPlace,
    /// Address of the first byte of the region in the mapping.
    start: NonNull<u8>,
    mapping: Mapping,
}

// SAFETY: the memory is not bound to a thread, and all accesses use atomic words or raw copies.
unsafe impl Send for Region {}
// SAFETY: the memory is not bound to a thread, and all accesses use atomic words or raw copies.
unsafe impl Sync for Region {}

impl Memory {
    /// Maps the regions `places` of the guest's memory files.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::InvalidInput`] if there is no region or there are more than [`REGIONS_MAX`], if a
    /// region is empty, wraps around the address space or exceeds its file, if a file is not in RAM, or if more than
    /// [`MAPPED_BYTES_MAX`] would be mapped. Also returns any error from `mmap(2)`.
    pub fn map(places: &[RegionPlace], files: &[impl AsFd]) -> io::Result<Arc<Self>> {
        let (count, of_files) = (places.len(), files.len());
        if count == 0 || count > REGIONS_MAX || count != of_files {
            let why = format!(
                "{count} memory regions with {of_files} files; expected 1 to {REGIONS_MAX} \
                 regions, each with one file"
            );
            return Err(invalid(why));
        }
        let (mut regions, mut left) = (Vec::new(), MAPPED_BYTES_MAX);
        for (place, file) in places.iter().zip(files) {
            let whole = place.whole(file)?;
            left = left.checked_sub(whole).ok_or_else(|| {
                invalid(format!(
                    "mapping the regions needs more than {MAPPED_BYTES_MAX} bytes, because each \
                     file is mapped from its start"
                ))
            })?;
            regions.push(Region::map(*place, file, whole)?);
        }
        Ok(Arc::new(Self { regions, dirty: None }))
    }

    /// Returns whether a file was truncated, so that part of the memory is gone.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        let is_log_lost = self.dirty.as_ref().is_some_and(|log| log.is_lost());
        is_log_lost || self.regions.iter().any(|region| region.mapping.is_lost())
    }

    /// Sets the dirty log for subsequent writes, or disables logging.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::InvalidInput`] if the log does not cover the memory.
    pub(crate) fn log_to(&mut self, log: Option<Arc<DirtyLog>>) -> io::Result<()> {
        let ends = self.regions.iter().map(|region| region.place.guest + region.place.bytes);
        let end = ends.max().unwrap_or(0);
        if log.as_ref().is_some_and(|log| !log.covers(end)) {
            return Err(invalid(format!(
                "the dirty log is too short: guest memory ends at {end:#x}"
            )));
        }
        self.dirty = log;
        Ok(())
    }

    /// Returns whether writes are logged.
    pub(crate) fn is_logged(&self) -> bool {
        self.dirty.is_some()
    }

    /// Logs a write at a guest address.
    #[inline]
    fn written(&self, guest: u64, bytes: usize) {
        if let Some(log) = &self.dirty {
            log.mark(guest, bytes);
        }
    }

    /// Returns a range of `bytes` bytes at address `user` in the front end's process. The address must be aligned to
    /// `align`, which is at most 16.
    #[must_use]
    pub fn place(self: &Arc<Self>, user: u64, bytes: usize, align: usize) -> Option<Place> {
        let found = self.regions.iter().find_map(|region| {
            let at = user.checked_sub(region.place.user)?;
            Some((region.part(at, bytes as u64)?, region.place.guest + at))
        });
        let is_aligned = |start: NonNull<u8>| start.as_ptr().addr().is_multiple_of(align);
        let (start, guest) = found.filter(|(start, _)| is_aligned(*start))?;
        Some(Place { start, bytes, guest, memory: Arc::clone(self) })
    }

    /// Copies bytes from a guest address. Returns whether the whole range is in the guest's memory.
    #[must_use]
    pub fn read(&self, guest: u64, into: &mut [u8]) -> bool {
        self.read_headed(guest, into, 0)
    }

    /// Copies bytes to a guest address. Returns whether the whole range is in the guest's memory.
    #[must_use]
    pub fn write(&self, guest: u64, from: &[u8]) -> bool {
        self.write_headed(guest, from, 0)
    }

    /// Works like [`Memory::read`], but reads the first `words` bytes as atomic words.
    #[must_use]
    #[inline]
    pub(crate) fn read_headed(&self, guest: u64, into: &mut [u8], words: usize) -> bool {
        self.pieces(guest, into.len(), |start, done, bytes| {
            let Some(piece) = into.get_mut(done..done + bytes) else { return };
            let (head, payload) = piece.split_at_mut(words.saturating_sub(done).min(bytes));
            load_words(start, head);
            // SAFETY: `pieces` returns `bytes` bytes of mapped memory, and `head` is not longer.
            let behind = unsafe { start.add(head.len()) };
            // SAFETY: the memory is mapped; another program may write there at the same time, and any bytes read are
            // acceptable.
            unsafe {
                ptr::copy_nonoverlapping(behind.as_ptr(), payload.as_mut_ptr(), payload.len());
            }
        })
    }

    /// Works like [`Memory::write`], but writes the first `words` bytes as atomic words.
    #[must_use]
    #[inline]
    pub(crate) fn write_headed(&self, guest: u64, from: &[u8], words: usize) -> bool {
        self.pieces(guest, from.len(), |start, done, bytes| {
            let Some(piece) = from.get(done..done + bytes) else { return };
            let (head, payload) = piece.split_at(words.saturating_sub(done).min(bytes));
            store_words(start, head);
            // SAFETY: `pieces` returns `bytes` bytes of mapped memory, and `head` is not longer.
            let behind = unsafe { start.add(head.len()) };
            // SAFETY: the memory is mapped, and no reference to it exists.
            unsafe { ptr::copy_nonoverlapping(payload.as_ptr(), behind.as_ptr(), payload.len()) };
            self.written(guest.wrapping_add(done as u64), bytes);
        })
    }

    /// Prefetches the headers at a guest address, which will be read soon. Any address is allowed.
    #[inline]
    pub(crate) fn fetch(&self, guest: u64) {
        #[cfg(target_arch = "x86_64")]
        self.pieces(guest, HEADERS_BYTES, |start, _, _| {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            for line in [0, LINE_BYTES] {
                let line = start.as_ptr().cast::<i8>().wrapping_add(line);
                // SAFETY: a prefetch is only a hint, and no address causes a fault.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(line) };
            }
        });
        #[cfg(not(target_arch = "x86_64"))]
        let _ = guest;
    }

    /// Returns whether a range of guest addresses lies in the guest's memory.
    #[must_use]
    pub fn has(&self, guest: u64, bytes: usize) -> bool {
        self.pieces(guest, bytes, |_, _, _| ())
    }

    /// Calls `each` for every piece of a range, with the address of the piece, the number of bytes before it, and its
    /// length. Returns whether the whole range is in the guest's memory. A range may continue in another region.
    #[inline]
    fn pieces(
        &self,
        mut guest: u64,
        bytes: usize,
        mut each: impl FnMut(NonNull<u8>, usize, usize),
    ) -> bool {
        let mut done = 0;
        while done < bytes {
            let found = self.regions.iter().find_map(|region| {
                let at = guest.checked_sub(region.place.guest)?;
                let there = region.place.bytes.checked_sub(at).filter(|there| *there > 0)?;
                let piece = there.min((bytes - done) as u64);
                Some((region.part(at, piece)?, piece as usize))
            });
            let Some((start, piece)) = found else { return false };
            each(start, done, piece);
            done += piece;
            let Some(next) = guest.checked_add(piece as u64) else { return done == bytes };
            guest = next;
        }
        true
    }
}

/// Reads mapped memory with atomic words as wide as its alignment allows.
#[inline]
fn load_words(start: NonNull<u8>, into: &mut [u8]) {
    let address = start.as_ptr().addr();
    let mut at = 0;
    while let left = into.len() - at
        && left > 0
    {
        // SAFETY: the caller has mapped at least as much memory as the length of `into`.
        let word = unsafe { start.add(at) };
        let is_aligned = |bytes: usize| left >= bytes && (address + at).is_multiple_of(bytes);
        if is_aligned(8) {
            // SAFETY: the memory is mapped, and the 8 bytes are aligned.
            let value = unsafe { word.cast::<AtomicU64>().as_ref() }.load(Ordering::Relaxed);
            into[at..at + 8].copy_from_slice(&value.to_ne_bytes());
            at += 8;
        } else if is_aligned(4) {
            // SAFETY: the memory is mapped, and the 4 bytes are aligned.
            let value = unsafe { word.cast::<AtomicU32>().as_ref() }.load(Ordering::Relaxed);
            into[at..at + 4].copy_from_slice(&value.to_ne_bytes());
            at += 4;
        } else {
            // SAFETY: the byte is mapped.
            into[at] = unsafe { word.cast::<AtomicU8>().as_ref() }.load(Ordering::Relaxed);
            at += 1;
        }
    }
}

/// Writes mapped memory with atomic words as wide as its alignment allows.
#[inline]
fn store_words(start: NonNull<u8>, from: &[u8]) {
    let address = start.as_ptr().addr();
    let mut rest = from;
    while let Some((byte, behind)) = rest.split_first() {
        let at = from.len() - rest.len();
        // SAFETY: the caller has mapped at least as much memory as the length of `from`.
        let word = unsafe { start.add(at) };
        match (rest.first_chunk::<8>(), rest.first_chunk::<4>()) {
            (Some(quad), _) if (address + at).is_multiple_of(8) => {
                // SAFETY: the memory is mapped, and the 8 bytes are aligned.
                let word = unsafe { word.cast::<AtomicU64>().as_ref() };
                word.store(u64::from_ne_bytes(*quad), Ordering::Relaxed);
                rest = &rest[8..];
            }
            (_, Some(long)) if (address + at).is_multiple_of(4) => {
                // SAFETY: the memory is mapped, and the 4 bytes are aligned.
                let word = unsafe { word.cast::<AtomicU32>().as_ref() };
                word.store(u32::from_ne_bytes(*long), Ordering::Relaxed);
                rest = &rest[4..];
            }
            _ => {
                // SAFETY: the byte is mapped.
                let word = unsafe { word.cast::<AtomicU8>().as_ref() };
                word.store(*byte, Ordering::Relaxed);
                rest = behind;
            }
        }
    }
}

impl Region {
    /// Maps a region, mapping the first `whole` bytes of its file.
    fn map(place: RegionPlace, file: &impl AsFd, whole: u64) -> io::Result<Self> {
        let mapping = Mapping::new(file, whole)?;
        // Both values fit into `usize`, because the mapping includes them.
        let start = mapping.part(place.offset as usize, place.bytes as usize);
        Ok(Self { place, start, mapping })
    }

    /// Returns the address of `bytes` bytes at offset `at`, if the range is inside the region.
    #[inline]
    fn part(&self, at: u64, bytes: u64) -> Option<NonNull<u8>> {
        let is_inside = at.checked_add(bytes).is_some_and(|end| end <= self.place.bytes);
        // SAFETY: the result is inside the region or just after its end, and the region is inside its mapping.
        is_inside.then(|| unsafe { self.start.add(at as usize) })
    }
}

/// A fixed range of a guest's memory, for example a part of a ring.
#[derive(Debug)]
pub struct Place {
    start: NonNull<u8>,
    bytes: usize,
    /// Address of the range in the guest.
    guest: u64,
    memory: Arc<Memory>,
}

// SAFETY: all accesses use atomic words.
unsafe impl Send for Place {}

impl Place {
    /// Returns two 8-byte words at offset `at`.
    #[inline]
    pub(crate) fn pair(&self, at: usize) -> [u64; 2] {
        [self.load_quad(at), self.load_quad(at + 8)]
    }

    /// Returns the 8-byte number at offset `at`.
    #[inline]
    fn load_quad(&self, at: usize) -> u64 {
        // SAFETY: `word` returns aligned memory of this length, which stays mapped while `self` exists.
        let word = unsafe { self.word::<8>(at).cast::<AtomicU64>().as_ref() };
        u64::from_le(word.load(Ordering::Relaxed))
    }

    /// Writes an 8-byte number with release ordering.
    #[inline]
    pub(crate) fn store_quad(&self, at: usize, value: u64) {
        // SAFETY: as in `load_quad`.
        let word = unsafe { self.word::<8>(at).cast::<AtomicU64>().as_ref() };
        word.store(value.to_le(), Ordering::Release);
        self.written(at, 8);
    }

    /// Returns the 2-byte number at offset `at` with acquire ordering.
    #[inline]
    pub(crate) fn load(&self, at: usize) -> u16 {
        // SAFETY: as in `load_quad`.
        let word = unsafe { self.word::<2>(at).cast::<AtomicU16>().as_ref() };
        u16::from_le(word.load(Ordering::Acquire))
    }

    /// Writes a 2-byte number with release ordering.
    #[inline]
    pub(crate) fn store(&self, at: usize, value: u16) {
        // SAFETY: as in `load_quad`.
        let word = unsafe { self.word::<2>(at).cast::<AtomicU16>().as_ref() };
        word.store(value.to_le(), Ordering::Release);
        self.written(at, 2);
    }

    /// Returns the 4-byte number at offset `at`.
    #[inline]
    pub(crate) fn load_long(&self, at: usize) -> u32 {
        // SAFETY: as in `load_quad`.
        let word = unsafe { self.word::<4>(at).cast::<AtomicU32>().as_ref() };
        u32::from_le(word.load(Ordering::Relaxed))
    }

    /// Writes a 4-byte number.
    #[inline]
    pub(crate) fn store_long(&self, at: usize, value: u32) {
        // SAFETY: as in `load_quad`.
        let word = unsafe { self.word::<4>(at).cast::<AtomicU32>().as_ref() };
        word.store(value.to_le(), Ordering::Relaxed);
        self.written(at, 4);
    }

    /// Logs a written word.
    #[inline]
    fn written(&self, at: usize, bytes: usize) {
        self.memory.written(self.guest + at as u64, bytes);
    }

    /// Returns the address of an aligned word.
    ///
    /// # Panics
    /// Panics if the word is outside the place; callers compute the offset from the length that they requested.
    #[inline]
    fn word<const BYTES: usize>(&self, at: usize) -> NonNull<u8> {
        assert!(at + BYTES <= self.bytes, "the range is outside the guest's memory");
        // SAFETY: the word is inside the place.
        let start = unsafe { self.start.add(at) };
        assert!(start.as_ptr().addr().is_multiple_of(BYTES), "the word is not aligned");
        start
    }
}

/// Number of bytes to prefetch: a virtio header and the packet headers after it.
#[cfg(target_arch = "x86_64")]
const HEADERS_BYTES: usize = 2 * LINE_BYTES;
/// Cache line size in bytes.
#[cfg(target_arch = "x86_64")]
const LINE_BYTES: usize = 64;
/// Maximum number of memory regions, limited by the message format.
pub const REGIONS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use std::{fs, io, os::fd::OwnedFd};

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::{Memory, RegionPlace};

    /// Size of a huge page on x86 and Arm.
    const HUGE_PAGE: u64 = 2 << 20;
    /// Size of a PC's memory below the address range for devices; not a multiple of the huge page size.
    const LOW_MEMORY: u64 = 0xa_0000;

    /// Maps two memory regions that share a file in huge pages. If no huge pages are available, prints a message and
    /// returns `None`.
    fn huge(name: &str) -> Option<(std::sync::Arc<Memory>, OwnedFd)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
        let mapped = memfd_create(name, flags).map_err(io::Error::from).and_then(|file| {
            ftruncate(&file, HUGE_PAGE)?;
            let place = RegionPlace { guest: 0, bytes: LOW_MEMORY, user: 0, offset: 0 };
            let high = RegionPlace { guest: 1 << 32, offset: LOW_MEMORY, ..place };
            let files = [file.try_clone()?, file.try_clone()?];
            Ok((Memory::map(&[place, high], &files)?, file))
        });
        mapped
            .inspect_err(|error| println!("skipped: this machine has no huge pages: {error}"))
            .ok()
    }

    fn is_mapped(name: &str) -> bool {
        fs::read_to_string("/proc/self/maps").unwrap().contains(name)
    }

    #[test]
    fn words_and_bytes_are_the_same_whatever_the_alignment() {
        let file = memfd_create("words", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, 0x2000).unwrap();
        let low = RegionPlace { guest: 0, bytes: 0x1000, user: 0, offset: 0 };
        let high = RegionPlace { guest: 0x1000, user: 0x1000, offset: 0x1000, ..low };
        let files = [file.try_clone().unwrap(), file];
        let memory = Memory::map(&[low, high], &files).unwrap();
        let bytes: Vec<u8> = (1..=40).collect();
        // The ranges span the boundary between the two regions.
        for at in (0..16).chain(0x1000 - 48..0x1008) {
            for words in [0, 1, 7, 12, 24, 40, 99] {
                assert!(memory.write(at, &[0; 40]) && memory.write_headed(at, &bytes, words));
                let mut plain = [0; 40];
                assert!(memory.read(at, &mut plain));
                assert_eq!(plain[..], bytes, "{at:#x} {words}");
                let mut read = [0; 40];
                assert!(memory.read_headed(at, &mut read, words));
                assert_eq!(read[..], bytes, "{at:#x} {words}");
            }
        }
        assert!(!memory.read_headed(0x1fff, &mut [0; 2], 2));
        assert!(!memory.write_headed(0x1fff, &[0; 2], 2));
    }

    #[test]
    fn a_part_of_a_huge_page_is_unmapped_whole() {
        let Some((memory, _file)) = huge("unmapped-whole") else { return };
        assert!(memory.write(LOW_MEMORY - 2, b"ok") && memory.write(1 << 32, b"ok"));
        assert!(!memory.has(LOW_MEMORY - 1, 2));
        assert!(is_mapped("unmapped-whole"));
        drop(memory);
        assert!(!is_mapped("unmapped-whole"));
    }

    #[test]
    fn a_huge_page_that_is_taken_away_is_lost_and_nothing_else() {
        let Some((memory, file)) = huge("taken-away") else { return };
        assert!(memory.write(0, b"ok") && !memory.is_lost());
        ftruncate(&file, 0).unwrap();
        let mut bytes = [1; 2];
        assert!(memory.read(0, &mut bytes));
        assert_eq!((bytes, memory.is_lost()), ([0; 2], true));
    }
}
