//! The driver's side of a split virtqueue. The driver's own memory contains slots of equal length, each with one
//! descriptor.
//!
//! The device shares this memory and may write all of it at any time. The driver therefore never reads back what it has
//! written, copies each frame once, and checks each used entry against the outstanding slots. If an entry refers to any
//! other slot, the ring is broken, because the owners of the slots are no longer known.

use std::{io::IoSlice, sync::Arc};

use crate::{
    backend::Way,
    memory::Memory,
    ring::{ChainFault, FETCHED_AHEAD, HEADER_BYTES_MAX, Piece, Sent, fill},
    vring::{Addresses, DESCRIPTOR_BYTES, IS_WRITTEN, Side, SplitParts},
};

/// A split virtqueue in the driver's memory, with [`SLOTS`] slots of [`SLOT_BYTES`] bytes.
#[derive(Debug)]
pub struct DriverRing {
    memory: Arc<Memory>,
    parts: SplitParts,
    way: Way,
    /// Address of the first slot.
    slots: u64,
    /// Index of the entry that will be made available next.
    next: u16,
    /// Index of the next used entry to read.
    seen: u16,
    /// Index up to which the device is known to have used entries.
    known: u16,
    /// Slots owned by the driver. The last slot is taken first, because it is probably still in the CPU cache.
    idle: Vec<u16>,
    is_out: Vec<bool>,
    /// Length in bytes stored in the descriptor of each slot.
    lengths: Vec<u32>,
    is_broken: bool,
}

impl DriverRing {
    /// Creates the ring for this direction in zeroed memory at address `at`, which is the same in both programs.
    /// Returns `None` if there are fewer than [`RING_BYTES`] bytes of memory at this address. A ring for frames from
    /// the device starts with all slots available.
    #[must_use]
    pub fn new(memory: &Arc<Memory>, at: u64, way: Way, event_index: bool) -> Option<Self> {
        let parts = SplitParts::new(memory, &addresses(at), SLOTS, Side::Driver, event_index)?;
        let mut ring = Self {
            memory: Arc::clone(memory),
            parts,
            way,
            slots: at.checked_add(HEAD_BYTES)?,
            next: 0,
            seen: 0,
            known: 0,
            idle: (0..SLOTS).rev().collect(),
            is_out: vec![false; SLOTS.into()],
            lengths: vec![SLOT_BYTES as u32; SLOTS.into()],
            is_broken: false,
        };
        let flags = if way == Way::ToGuest { IS_WRITTEN } else { 0 };
        for slot in 0..SLOTS {
            let rest = SLOT_BYTES as u64 | u64::from(flags) << 32;
            let words = [ring.slot(slot), rest].map(u64::to_le_bytes);
            let place = at + u64::from(slot) * DESCRIPTOR_BYTES as u64;
            if !memory.has(ring.slot(slot), SLOT_BYTES)
                || !memory.write_headed(place, &words.concat(), DESCRIPTOR_BYTES)
            {
                return None;
            }
        }
        if way == Way::ToGuest {
            while let Some(slot) = ring.idle.pop() {
                ring.offer(slot);
            }
            let _ = ring.publish();
        }
        Some(ring)
    }

    /// Returns whether the device used an entry that it did not own. In that case, the content of the ring cannot be
    /// trusted.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Copies the next frame from the device, including its virtio header. Returns `None` if there is none.
    ///
    /// # Errors
    /// Returns the fault in the next used entry. With [`ChainFault::Length`] or [`ChainFault::TooLong`] one frame is
    /// lost; with any other fault the ring is broken.
    pub fn receive(&mut self, into: &mut [u8]) -> Result<Option<usize>, ChainFault> {
        let Some((slot, bytes)) = self.take()? else { return Ok(None) };
        let result = if bytes > SLOT_BYTES {
            Err(ChainFault::Length)
        } else {
            let room = into.get_mut(..bytes).ok_or(ChainFault::TooLong);
            let is_read =
                room.map(|room| self.memory.read_headed(self.slot(slot), room, HEADER_BYTES_MAX));
            is_read.and_then(|is_read| is_read.then_some(Some(bytes)).ok_or(ChainFault::Outside))
        };
        self.offer(slot);
        result
    }

    /// Copies a frame for the device; the frame starts with a virtio header.
    pub fn send(&mut self, parts: &[IoSlice<'_>]) -> Sent {
        loop {
            match self.take() {
                Ok(Some((slot, _))) => self.idle.push(slot),
                Ok(None) => break,
                Err(fault) => return Sent::Fault(fault),
            }
        }
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        if bytes > SLOT_BYTES {
            return Sent::TooLong;
        }
        let Some(slot) = self.idle.pop().filter(|_| !self.is_broken) else { return Sent::NoRoom };
        let piece = Piece { address: self.slot(slot), bytes };
        let is_written = fill(&self.memory, &[piece], parts.iter().map(|part| &part[..]));
        debug_assert!(is_written, "all slots are in the memory");
        self.name_length(slot, bytes as u32);
        self.offer(slot);
        Sent::Whole
    }

    /// Publishes the available entries to the device. Returns whether the device must be kicked.
    pub fn publish(&mut self) -> bool {
        self.parts.publish(self.next)
    }

    /// Requests a notification for the next used entry. If the ring carries frames to the device, requests it for the
    /// entry in the middle of the outstanding entries instead, because a notification costs the device more than using
    /// an entry. Returns whether entries were used in the meantime.
    #[must_use]
    pub fn ask(&mut self) -> bool {
        let out = self.next.wrapping_sub(self.known);
        let but = if self.way == Way::FromGuest { out / 2 } else { 0 };
        !self.is_broken && self.parts.ask(self.known, but)
    }

    /// Disables notifications from the device.
    pub fn hush(&mut self) {
        self.parts.hush();
    }

    /// Returns the slot of the next used entry, and the number of bytes that the device wrote to it.
    fn take(&mut self) -> Result<Option<(u16, usize)>, ChainFault> {
        if self.is_broken {
            return Ok(None);
        }
        if self.known == self.seen {
            self.known = self.parts.theirs.count();
            // The device cannot use more entries than were made available.
            if self.known.wrapping_sub(self.seen) > self.next.wrapping_sub(self.seen) {
                return self.breaks(ChainFault::Overrun);
            }
        }
        if self.known == self.seen {
            return Ok(None);
        }
        let (head, bytes) = self.parts.theirs.returned(self.seen);
        let slot = u16::try_from(head).ok().filter(|slot| self.has_out(*slot));
        let Some(slot) = slot else { return self.breaks(ChainFault::Index) };
        self.fetch_ahead();
        self.seen = self.seen.wrapping_add(1);
        self.is_out[usize::from(slot)] = false;
        Ok(Some((slot, bytes as usize)))
    }

    /// Prefetches a frame that will be received soon.
    #[inline]
    fn fetch_ahead(&self) {
        if self.way == Way::ToGuest && self.known.wrapping_sub(self.seen) > FETCHED_AHEAD {
            let (head, _) = self.parts.theirs.returned(self.seen.wrapping_add(FETCHED_AHEAD));
            self.memory.fetch(self.slots.wrapping_add(u64::from(head) * SLOT_BYTES as u64));
        }
    }

    fn breaks<T>(&mut self, fault: ChainFault) -> Result<T, ChainFault> {
        self.is_broken = true;
        Err(fault)
    }

    /// Makes a slot available. [`DriverRing::publish`] informs the device of it.
    fn offer(&mut self, slot: u16) {
        self.is_out[usize::from(slot)] = true;
        self.parts.mine.offer(self.next, slot);
        self.next = self.next.wrapping_add(1);
    }

    /// Writes the length of the frame in a slot, but only if it has changed: an unmodified cache line stays in both
    /// sides' caches.
    #[inline]
    fn name_length(&mut self, slot: u16, bytes: u32) {
        let slot = usize::from(slot);
        if core::mem::replace(&mut self.lengths[slot], bytes) != bytes {
            self.parts.descriptors.store_long(slot * DESCRIPTOR_BYTES + 8, bytes);
        }
    }

    fn has_out(&self, slot: u16) -> bool {
        self.is_out.get(usize::from(slot)) == Some(&true)
    }

    fn slot(&self, slot: u16) -> u64 {
        self.slots + u64::from(slot) * SLOT_BYTES as u64
    }
}

/// Returns the addresses of the parts of a ring that begins at `at`.
#[must_use]
pub const fn addresses(at: u64) -> Addresses {
    Addresses { descriptors: at, available: at + AVAILABLE, used: at + USED }
}

/// Number of slots, and of entries, in a ring.
pub const SLOTS: u16 = 256;
/// Length of a slot in bytes: it has room for the longest frame (66 KiB) and its header, and is an odd number of cache
/// lines. If slots were whole pages, the starts of all slots would share a cache set and evict each other.
pub const SLOT_BYTES: usize = (68 << 10) - 64;
/// Length in bytes of a ring with its slots, a multiple of the page size.
pub const RING_BYTES: u64 = HEAD_BYTES + SLOTS as u64 * SLOT_BYTES as u64;
/// Offset of the available ring. The available ring, the used ring and the first slot share no cache line.
const AVAILABLE: u64 = 0x1000;
/// Offset of the used ring.
const USED: u64 = 0x1400;
/// Offset of the first slot.
const HEAD_BYTES: u64 = 0x2000;
