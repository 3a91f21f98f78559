//! The device's side of a split ring (virtio 1.3 section 2.7): a table of descriptors, the entries that the driver made
//! available, and those that were used.
//!
//! All three are in the guest's memory, and what is read there is checked each time that it is read: an index against
//! the table, a chain against a number of descriptors, an address against the memory. An entry that is wrong is handed
//! back unused, as far as it can be named, and the next one is looked at.

use std::{io::IoSlice, sync::Arc};

pub use crate::parts::{Addresses, SIZE_MAX, Side};
use crate::{
    memory::Memory,
    parts::{DESCRIPTOR_BYTES, HAS_NEXT, IS_TABLE, IS_WRITTEN, Parts},
};

/// A defect of one entry of a ring, for which the guest loses what the entry was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChainFault {
    /// The entry, or a descriptor, names no descriptor of the table.
    Index,
    /// A frame would have more descriptors than [`PIECES_MAX`], or a chain more than its table: it loops.
    Endless,
    /// An address is not in the guest's memory.
    Outside,
    /// A descriptor to be read is in a ring of buffers to be written, or the reverse.
    Direction,
    /// A table of descriptors has a wrong length, is in another one, or is followed by a descriptor.
    Table,
    /// A chain has 2^32 bytes or more, which none may have (virtio 1.3 section 2.7.5).
    Length,
    /// A frame is longer than the buffer for it.
    TooLong,
    /// The driver claims more entries than the ring has: nothing in it can be believed, and it is left alone until the
    /// front end sets it anew.
    Overrun,
}

/// Result of an attempt to give a guest a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The frame is in its memory.
    Whole,
    /// Its buffers have no room now.
    NoRoom,
    /// Its buffers never have room for a frame of this length.
    TooLong,
    /// An entry was wrong. The frame may be offered again.
    Fault(ChainFault),
}

/// A split ring in the memory of a guest.
#[derive(Debug)]
pub struct Ring {
    memory: Arc<Memory>,
    parts: Parts,
    size: u16,
    /// Number of the next entry to take.
    next: u16,
    /// Number up to which entries are known to be there.
    known: u16,
    /// Number of the next used entry.
    next_used: u16,
    is_broken: bool,
    /// Descriptors that were read since this was asked last.
    walked: usize,
    /// The pieces of the chains at hand, and the chains: their heads and lengths.
    pieces: Vec<Piece>,
    chains: Vec<Chain>,
}

/// Bytes that a descriptor names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) address: u64,
    pub(crate) bytes: usize,
}

#[derive(Clone, Copy, Debug)]
struct Chain {
    head: u16,
    bytes: usize,
}

#[derive(Clone, Copy, Debug)]
struct Descriptor {
    address: u64,
    bytes: u32,
    flags: u16,
    next: u16,
}

impl Ring {
    /// The ring of `size` entries at these addresses, from which the entry `next` is the next to be taken; `None` if it
    /// is not wholly in the memory, or its size is no power of two.
    #[must_use]
    pub fn new(
        memory: &Arc<Memory>,
        addresses: &Addresses,
        size: u16,
        next: u16,
        event_index: bool,
    ) -> Option<Self> {
        let parts = Parts::new(memory, addresses, size, Side::Device, event_index)?;
        Some(Self {
            memory: Arc::clone(memory),
            size,
            next,
            known: next,
            next_used: parts.told(),
            parts,
            is_broken: false,
            walked: 0,
            pieces: Vec::new(),
            chains: Vec::new(),
        })
    }

    /// Whether it claimed more than it has, and is left alone.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Number of the next entry to take.
    #[must_use]
    pub fn next(&self) -> u16 {
        self.next
    }

    /// Number of entries that are there, as far as it is known.
    #[must_use]
    pub fn offered(&self) -> u16 {
        self.known.wrapping_sub(self.next)
    }

    /// Descriptors that were read since this was asked last: the work that a guest has made.
    pub fn take_walked(&mut self) -> usize {
        core::mem::take(&mut self.walked)
    }

    /// Copies the next frame that the guest sends, its virtio header included; `None` if there is none.
    ///
    /// # Errors
    /// The defect of the next entry, which is passed over.
    pub fn receive(&mut self, into: &mut [u8]) -> Result<Option<usize>, ChainFault> {
        let Some(head) = self.take()? else { return Ok(None) };
        self.fetch_ahead();
        self.pieces.clear();
        let result = self.walk(head, false).and_then(|bytes| {
            let room = into.get_mut(..bytes).ok_or(ChainFault::TooLong)?;
            let mut rest = room;
            for piece in &self.pieces {
                let (part, behind) = rest.split_at_mut(piece.bytes.min(rest.len()));
                if !self.memory.read(piece.address, part) {
                    return Err(ChainFault::Outside);
                }
                rest = behind;
            }
            Ok(Some(bytes))
        });
        self.give_back(head, 0);
        result
    }

    /// Copies a frame into buffers of the guest: into one, or into as many as it takes if they are `mergeable`. The
    /// frame begins with a virtio header of `header_bytes` bytes, in the first part, where the number of buffers is
    /// filled in if the header has one.
    pub fn send(&mut self, parts: &[IoSlice<'_>], header_bytes: usize, mergeable: bool) -> Sent {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        match self.gather(bytes, mergeable) {
            Sent::Whole => {}
            other => return other,
        }
        let (mut header, first) = ([0; HEADER_BYTES_MAX], parts.first().map_or(&[][..], |p| p));
        let (begin, behind) = first.split_at(header_bytes.min(first.len()).min(HEADER_BYTES_MAX));
        let copied = begin.len();
        header[..copied].copy_from_slice(begin);
        if copied >= BUFFERS + 2 {
            header[BUFFERS..BUFFERS + 2].copy_from_slice(&(self.chains.len() as u16).to_le_bytes());
        }
        let rest = parts.iter().skip(1).map(|part| &part[..]);
        let all = [&header[..copied], behind].into_iter().chain(rest);
        if !fill(&self.memory, &self.pieces, all) {
            // The addresses were looked at before: the front end took no memory away in between.
            return self.refuse(ChainFault::Outside);
        }
        let mut left = bytes;
        for i in 0..self.chains.len() {
            let Chain { head, bytes } = self.chains[i];
            self.give_back(head, bytes.min(left));
            left = left.saturating_sub(bytes);
        }
        Sent::Whole
    }

    /// Tells the driver of the entries that were used; returns whether it wants to be interrupted for them.
    pub fn publish(&mut self) -> bool {
        self.parts.publish(self.next_used)
    }

    /// Asks the driver to tell of the next entry that it makes available. Returns whether there is one already that was
    /// not known.
    #[must_use]
    pub fn ask(&mut self) -> bool {
        !self.is_broken && self.parts.ask(self.known, 0)
    }

    /// Lets the driver know that nobody waits for its entries.
    pub fn hush(&mut self) {
        self.parts.hush();
    }

    /// Has the processor fetch a frame that is received soon: its bytes are in the cache of the one that wrote them.
    #[inline]
    fn fetch_ahead(&self) {
        if self.offered() <= FETCHED_AHEAD {
            return;
        }
        let head = self.parts.theirs.head(self.next.wrapping_add(FETCHED_AHEAD));
        if head < self.size {
            let [address, _] = self.parts.descriptors.pair(usize::from(head) * DESCRIPTOR_BYTES);
            self.memory.fetch(address);
        }
    }

    /// The next entry's head, which is passed over.
    fn take(&mut self) -> Result<Option<u16>, ChainFault> {
        if self.left()? == 0 {
            return Ok(None);
        }
        self.head().map(Some)
    }

    /// The head of an entry that is known to be there, which is passed over.
    fn head(&mut self) -> Result<u16, ChainFault> {
        let head = self.parts.theirs.head(self.next);
        self.next = self.next.wrapping_add(1);
        if head < self.size { Ok(head) } else { Err(ChainFault::Index) }
    }

    /// Entries that are there.
    fn left(&mut self) -> Result<u16, ChainFault> {
        if self.is_broken {
            return Ok(0);
        }
        if self.known == self.next {
            self.known = self.parts.theirs.count();
            self.check()?;
        }
        Ok(self.known.wrapping_sub(self.next))
    }

    fn check(&mut self) -> Result<(), ChainFault> {
        if self.known.wrapping_sub(self.next) > self.size {
            self.is_broken = true;
            return Err(ChainFault::Overrun);
        }
        Ok(())
    }

    /// Takes as many chains as a frame needs; takes none if there are too few.
    fn gather(&mut self, bytes: usize, mergeable: bool) -> Sent {
        self.pieces.clear();
        self.chains.clear();
        if self.is_broken {
            return Sent::NoRoom;
        }
        let (start, mut room) = (self.next, 0_usize);
        while room < bytes || self.chains.is_empty() {
            // All that are there, and not only those that are known, before it is said that there is no room.
            if self.known == self.next {
                self.known = self.parts.theirs.count();
                if self.known.wrapping_sub(start) > self.size {
                    self.is_broken = true;
                    return Sent::Fault(ChainFault::Overrun);
                }
            }
            if self.known == self.next {
                let has_all = self.next.wrapping_sub(start) == self.size;
                self.next = start;
                return if has_all { Sent::TooLong } else { Sent::NoRoom };
            }
            let head = match self.head() {
                Ok(head) => head,
                Err(fault) => return self.refuse(fault),
            };
            match self.walk(head, true) {
                Ok(more) => {
                    self.chains.push(Chain { head, bytes: more });
                    room = room.saturating_add(more);
                }
                Err(fault) => {
                    self.chains.push(Chain { head, bytes: 0 });
                    return self.refuse(fault);
                }
            }
            if room < bytes && !mergeable {
                // It is for a shorter frame.
                self.next = start;
                return Sent::TooLong;
            }
        }
        Sent::Whole
    }

    /// Hands the entries at hand back unused.
    fn refuse(&mut self, fault: ChainFault) -> Sent {
        for i in 0..self.chains.len() {
            self.give_back(self.chains[i].head, 0);
        }
        Sent::Fault(fault)
    }

    /// Adds a used entry, of which the driver learns by [`Ring::publish`].
    fn give_back(&mut self, head: u16, written: usize) {
        self.parts.mine.give_back(self.next_used, head, written as u32);
        self.next_used = self.next_used.wrapping_add(1);
        debug_assert!(
            self.next_used != self.parts.told(),
            "the driver is told before the numbers go round"
        );
    }

    /// Adds the pieces of a chain, and returns their length.
    fn walk(&mut self, head: u16, is_written: bool) -> Result<usize, ChainFault> {
        let (mut bytes, mut next) = (0_u32, head);
        for _ in 0..usize::from(self.size).min(PIECES_MAX) {
            if next >= self.size {
                return Err(ChainFault::Index);
            }
            let [address, rest] = self.parts.descriptors.pair(usize::from(next) * DESCRIPTOR_BYTES);
            let descriptor = Descriptor::new(address, rest);
            if descriptor.has(IS_TABLE) {
                if descriptor.has(HAS_NEXT) {
                    return Err(ChainFault::Table);
                }
                return self.walk_table(descriptor, is_written, bytes);
            }
            bytes = self.add(descriptor, is_written, bytes)?;
            if !descriptor.has(HAS_NEXT) {
                return Ok(bytes as usize);
            }
            next = descriptor.next;
        }
        Err(ChainFault::Endless)
    }

    /// Adds the pieces of a table of descriptors to a chain, and returns the length of all.
    fn walk_table(
        &mut self,
        table: Descriptor,
        is_written: bool,
        mut bytes: u32,
    ) -> Result<usize, ChainFault> {
        let length = table.bytes as usize;
        let entries = length / DESCRIPTOR_BYTES;
        if !length.is_multiple_of(DESCRIPTOR_BYTES) || entries == 0 {
            return Err(ChainFault::Table);
        }
        let mut next = 0_usize;
        for _ in 0..entries.min(PIECES_MAX) {
            if next >= entries {
                return Err(ChainFault::Index);
            }
            let mut words = [0; DESCRIPTOR_BYTES];
            let at = table.address.checked_add((next * DESCRIPTOR_BYTES) as u64);
            if !at.is_some_and(|at| self.memory.read(at, &mut words)) {
                return Err(ChainFault::Outside);
            }
            let word = |at: usize| words[at..].first_chunk().copied().map_or(0, u64::from_le_bytes);
            let descriptor = Descriptor::new(word(0), word(8));
            if descriptor.has(IS_TABLE) {
                return Err(ChainFault::Table);
            }
            bytes = self.add(descriptor, is_written, bytes)?;
            if !descriptor.has(HAS_NEXT) {
                return Ok(bytes as usize);
            }
            next = descriptor.next.into();
        }
        Err(ChainFault::Endless)
    }

    /// Adds a piece to a chain that has `before` bytes, and returns the length of both.
    fn add(
        &mut self,
        descriptor: Descriptor,
        is_written: bool,
        before: u32,
    ) -> Result<u32, ChainFault> {
        self.walked += 1;
        let Descriptor { address, bytes, .. } = descriptor;
        let all = before.checked_add(bytes).ok_or(ChainFault::Length)?;
        let bytes = bytes as usize;
        if descriptor.has(IS_WRITTEN) != is_written {
            return Err(ChainFault::Direction);
        }
        // What is read is looked at when it is copied; a frame is not written in part.
        if is_written && !self.memory.has(address, bytes) {
            return Err(ChainFault::Outside);
        }
        if self.pieces.len() >= PIECES_MAX {
            return Err(ChainFault::Endless);
        }
        self.pieces.push(Piece { address, bytes });
        Ok(all)
    }
}

impl Descriptor {
    fn new(address: u64, rest: u64) -> Self {
        Self { address, bytes: rest as u32, flags: (rest >> 32) as u16, next: (rest >> 48) as u16 }
    }

    fn has(self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// Copies parts one behind the other into pieces of memory, which have room.
pub(crate) fn fill<'a>(
    memory: &Memory,
    pieces: &[Piece],
    parts: impl Iterator<Item = &'a [u8]>,
) -> bool {
    let mut pieces = pieces.iter().copied();
    let mut piece = Piece { address: 0, bytes: 0 };
    for mut part in parts {
        while !part.is_empty() {
            while piece.bytes == 0 {
                let Some(next) = pieces.next() else { return false };
                piece = next;
            }
            let (now, rest) = part.split_at(piece.bytes.min(part.len()));
            if !memory.write(piece.address, now) {
                return false;
            }
            piece.address = piece.address.wrapping_add(now.len() as u64);
            piece.bytes -= now.len();
            part = rest;
        }
    }
    true
}

/// Entries between one that is read and one whose frame is fetched meanwhile.
pub(crate) const FETCHED_AHEAD: u16 = 4;
/// Position of the number of buffers in a virtio header.
const BUFFERS: usize = 10;
/// Bytes of the longest virtio header.
const HEADER_BYTES_MAX: usize = 24;

/// Descriptors of a frame, however many chains it is in: a superframe of 64 KiB in pages has 17, and one in fragments
/// of a socket's pages not many more. Descriptors without bytes count as well, of which a guest might name millions.
pub const PIECES_MAX: usize = 1024;
