//! The device's side of a split virtqueue (virtio 1.3 section 2.7): a descriptor table, the available ring and the used
//! ring.

use super::{Base, Chain, ChainFault, FETCHED_AHEAD, PIECES_MAX, Taken, pieces::Pieces};
use crate::vring::{DESCRIPTOR_BYTES, Descriptor, HAS_NEXT, IS_TABLE, SplitParts};

/// A split virtqueue as used by its device.
#[derive(Debug)]
pub(super) struct SplitRing {
    parts: SplitParts,
    size: u16,
    /// Index of the next entry to take.
    next: u16,
    /// Index of the first current entry.
    first: u16,
    /// Index up to which entries are known to be available.
    known: u16,
    /// Index of the next used entry.
    next_used: u16,
    is_broken: bool,
}

impl SplitRing {
    pub(super) fn new(parts: SplitParts, size: u16, base: Base) -> Option<Self> {
        let (Base::Told(number) | Base::Left(number)) = base;
        let next = u16::try_from(number).ok()?;
        let next_used = parts.notified();
        Some(Self { parts, size, next, first: next, known: next, next_used, is_broken: false })
    }

    pub(super) fn is_broken(&self) -> bool {
        self.is_broken
    }

    pub(super) fn base(&self) -> u32 {
        self.next.into()
    }

    pub(super) fn offered(&self) -> u16 {
        self.known.wrapping_sub(self.next)
    }

    pub(super) fn begin(&mut self) {
        self.first = self.next;
    }

    pub(super) fn undo(&mut self) {
        self.next = self.first;
    }

    pub(super) fn has_all(&self) -> bool {
        self.next.wrapping_sub(self.first) == self.size
    }

    pub(super) fn take(&mut self, pieces: &mut Pieces) -> Result<Option<Taken>, ChainFault> {
        if self.is_broken {
            return Ok(None);
        }
        if self.known == self.next {
            self.known = self.parts.theirs.count();
            if self.known.wrapping_sub(self.first) > self.size {
                self.is_broken = true;
                return Err(ChainFault::Overrun);
            }
        }
        if self.known == self.next {
            return Ok(None);
        }
        let head = self.parts.theirs.head(self.next);
        self.next = self.next.wrapping_add(1);
        if head >= self.size {
            return Err(ChainFault::Index);
        }
        Ok(Some(Taken::new(head, 1, self.walk(head, pieces))))
    }

    pub(super) fn give_back(&mut self, chains: &[Chain]) {
        for chain in chains {
            self.parts.mine.give_back(self.next_used, chain.number, chain.bytes);
            self.next_used = self.next_used.wrapping_add(1);
            debug_assert!(
                self.next_used != self.parts.notified(),
                "the entries are published before the indexes wrap around"
            );
        }
    }

    pub(super) fn publish(&mut self) -> bool {
        self.parts.publish(self.next_used)
    }

    pub(super) fn ask(&mut self) -> bool {
        self.parts.ask(self.known, 0)
    }

    pub(super) fn hush(&mut self) {
        self.parts.hush();
    }

    #[inline]
    pub(super) fn ahead(&self) -> Option<u64> {
        if self.offered() <= FETCHED_AHEAD {
            return None;
        }
        let head = self.parts.theirs.head(self.next.wrapping_add(FETCHED_AHEAD));
        (head < self.size).then(|| self.descriptor(head).address)
    }

    /// Adds the buffers of a chain and returns their length.
    fn walk(&self, head: u16, pieces: &mut Pieces) -> Result<u32, ChainFault> {
        let (mut bytes, mut next) = (0, head);
        for _ in 0..usize::from(self.size).min(PIECES_MAX) {
            if next >= self.size {
                return Err(ChainFault::Index);
            }
            let descriptor = self.descriptor(next);
            if descriptor.has(IS_TABLE) {
                if descriptor.has(HAS_NEXT) {
                    return Err(ChainFault::Table);
                }
                return walk_table(descriptor, pieces, bytes);
            }
            bytes = pieces.add(descriptor, bytes)?;
            if !descriptor.has(HAS_NEXT) {
                return Ok(bytes);
            }
            next = descriptor.number;
        }
        Err(ChainFault::Endless)
    }

    #[inline]
    fn descriptor(&self, number: u16) -> Descriptor {
        Descriptor::split(self.parts.descriptors.pair(usize::from(number) * DESCRIPTOR_BYTES))
    }
}

/// Adds the buffers of an indirect table to a chain of `bytes` bytes and returns the new length.
fn walk_table(table: Descriptor, pieces: &mut Pieces, mut bytes: u32) -> Result<u32, ChainFault> {
    let entries = Pieces::entries(table)?;
    let mut next = 0_usize;
    for _ in 0..entries.min(PIECES_MAX) {
        if next >= entries {
            return Err(ChainFault::Index);
        }
        let descriptor = Descriptor::split(pieces.entry(table, next)?);
        if descriptor.has(IS_TABLE) {
            return Err(ChainFault::Table);
        }
        bytes = pieces.add(descriptor, bytes)?;
        if !descriptor.has(HAS_NEXT) {
            return Ok(bytes);
        }
        next = descriptor.number.into();
    }
    Err(ChainFault::Endless)
}
