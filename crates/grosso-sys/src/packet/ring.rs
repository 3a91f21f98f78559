//! Code shared by the receive and transmit rings of packet sockets. A ring consists of slots of one size. Each slot
//! starts with a header (`TPACKET_V2`), and the first word of the header says who owns the slot.

use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering};
use std::io;

use rustix::param::page_size;

use super::{PacketSocket, set_option};
use crate::abi;
use crate::mapping::Mapping;

/// Size in bytes of the memory blocks that the kernel allocates for slots. A block holds as many slots as fit. The
/// kernel allocates powers of two, and finds slots faster if there are few blocks.
const BLOCK_BYTES: usize = 1 << 20;
/// Minimum slot length in bytes.
const SLOT_BYTES_MIN: usize = 256;
/// Cache line size in bytes.
const LINE_BYTES: usize = 64;
/// Default maximum length of a superframe in bytes. With BIG TCP, a higher maximum can be configured.
const SUPERFRAME_BYTES: usize = 64 << 10;
/// Number of cache lines to prefetch at the start of a slot: the kernel's header, a virtio header, and packet headers.
const HEADER_LINES: usize = 3;
/// Maximum memory of one ring in bytes. A larger ring is a configuration mistake.
const RING_BYTES_MAX: usize = 1 << 30;

/// Number and size of the slots of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingLayout {
    /// Length of a slot in bytes: a multiple of 64 and at least 256. A whole number of slots must exactly fill a whole
    /// number of pages, with at most 1 MiB in total. With 4 KiB pages, every multiple of 64 up to 16 KiB is valid;
    /// above 16 KiB, only multiples of the page size are. The kernel uses about 100 bytes of each slot. A packet longer
    /// than the remaining bytes is truncated on receive and rejected on transmit.
    pub slot_bytes: usize,
    /// Number of slots, rounded up to fill the memory that the kernel allocates.
    pub slots: usize,
}

impl RingLayout {
    /// Returns a layout for superframes of up to 64 KiB; each slot has one extra page for headers.
    #[must_use]
    pub fn superframes(slots: usize) -> Self {
        Self { slot_bytes: SUPERFRAME_BYTES + page_size(), slots }
    }

    /// Layout for packets of up to 1500 bytes with their headers.
    pub const PACKETS: Self = Self { slot_bytes: 1664, slots: 4096 };

    /// Returns a layout with slots of at least `slot_bytes` bytes, including the bytes that the kernel uses. The length
    /// is rounded up only to whole cache lines, because fewer long slots fit into the cache.
    #[must_use]
    pub fn fitting(slot_bytes: usize, slots: usize) -> Self {
        let lines = slot_bytes.max(SLOT_BYTES_MIN).next_multiple_of(LINE_BYTES);
        let by_lines = Self { slot_bytes: lines, slots };
        match by_lines.pages_bytes() {
            Some(bytes) if bytes <= BLOCK_BYTES => by_lines,
            _ => Self { slot_bytes: lines.next_power_of_two(), slots },
        }
    }

    /// Returns a valid layout, with the number of slots increased until they fill their memory.
    ///
    /// # Errors
    ///
    /// Returns `InvalidInput` if no such ring is possible.
    pub fn checked(self) -> io::Result<Self> {
        let bytes = self.slot_bytes.checked_mul(self.slots);
        let fits = bytes.is_some_and(|bytes| (1..=RING_BYTES_MAX).contains(&bytes));
        let has_lines =
            self.slot_bytes >= SLOT_BYTES_MIN && self.slot_bytes.is_multiple_of(LINE_BYTES);
        let is_in_block = self.pages_bytes().is_some_and(|bytes| bytes <= BLOCK_BYTES);
        if fits && has_lines && is_in_block {
            let block_slots = self.block_bytes() / self.slot_bytes;
            return Ok(Self { slots: self.slots.next_multiple_of(block_slots), ..self });
        }
        Err(io::Error::new(io::ErrorKind::InvalidInput, format!("invalid ring: {self:?}")))
    }

    /// Returns the smallest number of bytes that is both a whole number of pages and a whole number of slots.
    fn pages_bytes(self) -> Option<usize> {
        let shared = self.slot_bytes.trailing_zeros().min(page_size().trailing_zeros());
        self.slot_bytes.checked_mul(page_size() >> shared)
    }

    /// Returns the length of the blocks in which the slots are allocated without gaps.
    fn block_bytes(self) -> usize {
        let pages = self.pages_bytes().unwrap_or(BLOCK_BYTES);
        let ring = (self.slot_bytes * self.slots).next_multiple_of(pages);
        ring.min(BLOCK_BYTES - BLOCK_BYTES % pages)
    }
}

/// Direction of a ring. A socket has at most one ring per direction.
#[derive(Clone, Copy)]
pub(super) enum Direction {
    Receive,
    Transmit,
}

/// Offset of a slot in the memory of a ring. Only [`RingMemory`] creates such offsets, so every slot lies completely
/// inside its ring. An offset in one ring must not be used with another.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotPlace(u32);

impl SlotPlace {
    /// Offset of the first slot of every ring.
    pub(super) const FIRST: Self = Self(0);

    #[inline]
    fn start(self) -> usize {
        self.0 as usize
    }
}

/// The mapped slots of one ring.
#[derive(Debug)]
pub(super) struct RingMemory {
    mapping: Mapping,
    layout: RingLayout,
    /// Length of the virtio header before each packet, in bytes.
    pub(super) virtio_bytes: usize,
}

impl RingMemory {
    /// Creates a ring for a socket and maps it.
    pub(super) fn attach(
        socket: &PacketSocket,
        layout: RingLayout,
        direction: Direction,
    ) -> io::Result<Self> {
        let layout = layout.checked()?;
        let version: libc::c_int = abi::TPACKET_V2;
        set_option(&socket.file, abi::PACKET_VERSION, &version)?;
        let block_bytes = layout.block_bytes();
        let bytes = layout.slot_bytes * layout.slots;
        let request = abi::PacketRingRequest {
            block_bytes: block_bytes as u32,
            blocks: (bytes / block_bytes) as u32,
            slot_bytes: layout.slot_bytes as u32,
            slots: layout.slots as u32,
        };
        let option = match direction {
            Direction::Receive => abi::PACKET_RX_RING,
            Direction::Transmit => abi::PACKET_TX_RING,
        };
        set_option(&socket.file, option, &request)?;
        let mapping = Mapping::of_file(std::os::fd::AsFd::as_fd(&socket.file), 0, bytes)?;
        Ok(Self { mapping, layout, virtio_bytes: socket.virtio_bytes.into() })
    }

    /// Returns the status word of a slot, which says who owns the slot.
    #[inline]
    pub(super) fn status(&self, slot: SlotPlace) -> &AtomicU32 {
        // SAFETY: the word is the beginning of a slot, which lies completely in the mapping; slots are whole cache
        // lines.
        unsafe { self.mapping.atomic_unchecked(slot.start()) }
    }

    /// Returns the header of a slot.
    ///
    /// # Safety
    ///
    /// The caller must own the slot.
    #[inline]
    pub(super) unsafe fn header(&self, slot: SlotPlace) -> abi::PacketRingHeader {
        // SAFETY: the caller owns the slot, which is longer than the header.
        let bytes = unsafe { self.bytes(slot, 0..abi::PACKET_RING_HEADER_BYTES) };
        bytes.first_chunk().map(abi::PacketRingHeader::parse).unwrap_or_default()
    }

    /// Prefetches the cache lines of a slot with the kernel's header and the packet's headers, regardless of who owns
    /// the slot.
    #[inline]
    pub(super) fn fetch(&self, slot: SlotPlace) {
        self.mapping.fetch::<HEADER_LINES>(slot.start());
    }

    /// Returns a range of bytes in a slot.
    ///
    /// # Safety
    ///
    /// The range must be inside a slot that the caller owns until the borrow ends, and the caller must not write these
    /// bytes.
    #[inline]
    pub(super) unsafe fn bytes(&self, slot: SlotPlace, range: Range<usize>) -> &[u8] {
        debug_assert!(range.end <= self.layout.slot_bytes, "{range:?} is outside the slot");
        let range = slot.start() + range.start..slot.start() + range.end;
        // SAFETY: the caller guarantees that the range is in a slot that it owns, and slots are in the mapping.
        unsafe { self.mapping.slice_unchecked(range) }
    }

    /// Returns bytes in a slot for writing.
    ///
    /// # Safety
    ///
    /// The caller must own the slot until the borrow ends, and hold no other reference into it.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "each slot has its own owner")]
    pub(super) unsafe fn bytes_mut(&self, slot: SlotPlace, range: Range<usize>) -> &mut [u8] {
        let range = self.within(slot, range);
        // SAFETY: the range is in the slot, which the caller owns.
        unsafe { self.mapping.slice_mut(range) }
    }

    /// Releases a slot: whoever reads the new status also sees everything that was written to the slot before it.
    #[inline]
    pub(super) fn release(&self, slot: SlotPlace, status: u32) {
        self.status(slot).store(status, Ordering::Release);
    }

    #[inline]
    pub(super) fn layout(&self) -> RingLayout {
        self.layout
    }

    /// Returns the slot `distance` positions after `slot`. The distance is at most one round.
    #[inline]
    pub(super) fn after(&self, slot: SlotPlace, distance: usize) -> SlotPlace {
        let all = self.mapping.bytes();
        let after = slot.start() + distance * self.layout.slot_bytes;
        let after = if after < all { after } else { after - all };
        debug_assert!(after < all, "{distance} slots after {slot:?}");
        // A ring is at most 1 GiB long.
        SlotPlace(after as u32)
    }

    /// Returns all slots, starting with the first.
    pub(super) fn slots(&self) -> impl Iterator<Item = SlotPlace> {
        (0..self.layout.slots).map(|number| self.after(SlotPlace::FIRST, number))
    }

    #[inline]
    fn within(&self, slot: SlotPlace, range: Range<usize>) -> Range<usize> {
        if range.end > self.layout.slot_bytes {
            leaves(&range);
        }
        slot.start() + range.start..slot.start() + range.end
    }
}

#[cold]
#[inline(never)]
fn leaves(range: &Range<usize>) -> ! {
    panic!("{range:?} is outside the slot");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_made_of_lines_and_of_pages_within_reason() {
        let layout = |slot_bytes, slots| RingLayout { slot_bytes, slots }.checked();
        let superframes = RingLayout::superframes(1024).checked().unwrap();
        assert!((1024..1040).contains(&superframes.slots), "{superframes:?}");
        assert!(superframes.slot_bytes * superframes.slots <= 128 << 20, "{superframes:?}");
        assert!(superframes.block_bytes().is_multiple_of(page_size()), "{superframes:?}");
        let packets = RingLayout::PACKETS.checked().unwrap();
        assert!((4096..4300).contains(&packets.slots), "{packets:?}");
        assert!(packets.block_bytes() > BLOCK_BYTES / 2, "{packets:?}");
        assert_eq!(layout(2048, 1).unwrap().slots, page_size() / 2048);
        assert_eq!(layout(1 << 20, 3).unwrap(), RingLayout { slot_bytes: 1 << 20, slots: 3 });
        for (slot_bytes, slots) in
            [(0, 8), (8192, 0), (3000, 8), (128, 64), (2 << 20, 1), (1 << 20, 1 << 60)]
        {
            assert!(layout(slot_bytes, slots).is_err(), "{slot_bytes} x {slots}");
        }
    }

    #[test]
    fn slots_are_as_long_as_what_they_are_for_and_fill_whole_pages() {
        for bytes in (0..16 << 10).chain((16 << 10..1 << 20).step_by(999)) {
            let fitting = RingLayout::fitting(bytes, 1000);
            assert!(fitting.slot_bytes >= bytes, "{fitting:?}");
            let is_short = bytes <= 16 << 10 && page_size() == 4096;
            assert!(!is_short || fitting.slot_bytes < bytes.max(256) + 64, "{fitting:?}");
            let ring = fitting.checked().unwrap();
            let (block_bytes, all) = (ring.block_bytes(), ring.slot_bytes * ring.slots);
            assert!(block_bytes.is_multiple_of(page_size()), "{ring:?}");
            assert!(block_bytes <= BLOCK_BYTES && all.is_multiple_of(block_bytes), "{ring:?}");
        }
    }
}
