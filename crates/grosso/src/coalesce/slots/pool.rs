//! Bounded pool of the buffers in all held trains, except for the first buffer of each train.

use alloc::vec::Vec;
use core::ops::Range;

/// A buffer, and the payload range in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<B> {
    /// The buffer as it was pushed.
    pub buffer: B,
    start: u32,
    end: u32,
}

impl<B: AsRef<[u8]>> Part<B> {
    pub(crate) fn new(buffer: B, range: Range<usize>) -> Self {
        Self { buffer, start: range.start as u32, end: range.end as u32 }
    }

    /// Removes the bytes from offset `end` of the buffer onwards.
    pub(crate) fn truncate(&mut self, end: usize) {
        self.end = self.end.min(end as u32);
    }

    /// Returns the range of the buffer that belongs to the frame.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// Returns the bytes that belong to the frame.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.buffer.as_ref().get(self.range()).unwrap_or_default()
    }
}

/// Lists of parts in one slab. The most recently freed slot is reused first.
#[derive(Debug)]
pub(crate) struct Pool<B> {
    slots: Vec<Slot<B>>,
    free: u32,
    limit: usize,
}

#[derive(Debug)]
struct Slot<B> {
    part: Option<Part<B>>,
    next: u32,
}

/// First and last part of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct List {
    pub(crate) head: u32,
    tail: u32,
}

impl List {
    pub(crate) const EMPTY: Self = Self { head: NONE, tail: NONE };
}

impl<B> Pool<B> {
    pub(crate) fn new(limit: usize) -> Self {
        Self { slots: Vec::new(), free: NONE, limit: limit.min(NONE as usize) }
    }

    /// Appends part of a buffer to a list, writing the entry in place. Returns the buffer if the pool is full.
    #[inline(always)]
    pub(crate) fn push(
        &mut self,
        list: &mut List,
        buffer: B,
        range: Range<usize>,
    ) -> Result<(), B> {
        if self.free == NONE {
            self.grow();
        }
        let index = self.free;
        let Some(slot) = self.slots.get_mut(index as usize) else { return Err(buffer) };
        self.free = slot.next;
        let (start, end) = (range.start as u32, range.end as u32);
        let before = slot.part.replace(Part { buffer, start, end });
        debug_assert!(before.is_none(), "a free slot has no part");
        core::mem::forget(before);
        slot.next = NONE;
        match self.slots.get_mut(list.tail as usize) {
            Some(tail) => tail.next = index,
            None => list.head = index,
        }
        list.tail = index;
        Ok(())
    }

    /// Removes and returns the first part of a list.
    pub(crate) fn pop(&mut self, list: &mut List) -> Option<Part<B>> {
        let index = list.head;
        let slot = self.slots.get_mut(index as usize)?;
        list.head = slot.next;
        if list.head == NONE {
            list.tail = NONE;
        }
        slot.next = self.free;
        self.free = index;
        slot.part.take()
    }

    /// Returns the last part of a list.
    pub(crate) fn last(&self, list: &List) -> Option<&Part<B>> {
        self.slots.get(list.tail as usize)?.part.as_ref()
    }

    /// Returns the parts of a list in order.
    pub(crate) fn iter(&self, list: List) -> impl Iterator<Item = &Part<B>> + use<'_, B> {
        let mut at = list.head;
        core::iter::from_fn(move || {
            let slot = self.slots.get(at as usize)?;
            at = slot.next;
            slot.part.as_ref()
        })
    }

    /// Adds a free slot, unless the pool has reached its maximum size.
    fn grow(&mut self) {
        if self.slots.len() < self.limit {
            self.free = self.slots.len() as u32;
            self.slots.push(Slot { part: None, next: NONE });
        }
    }
}

/// Marks the end of a list.
const NONE: u32 = u32::MAX;
