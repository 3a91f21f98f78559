//! Tables that accept only one type of key.

use alloc::vec::Vec;
use core::{
    fmt::Debug,
    marker::PhantomData,
    ops::{Index, IndexMut},
};

/// Key type of a table.
pub(crate) trait Id: Copy + Debug {
    fn new(place: usize) -> Self;
    fn place(self) -> usize;
}

/// Table indexed by one key type, so that no other number can serve as a key.
#[derive(Clone, Debug)]
pub(crate) struct SlotMap<I, T> {
    items: Vec<T>,
    id: PhantomData<I>,
}

impl<I, T> Default for SlotMap<I, T> {
    fn default() -> Self {
        Self { items: Vec::new(), id: PhantomData }
    }
}

impl<I: Id, T> SlotMap<I, T> {
    #[inline(always)]
    pub(crate) fn get(&self, id: I) -> Option<&T> {
        self.items.get(id.place())
    }

    pub(crate) fn get_mut(&mut self, id: I) -> Option<&mut T> {
        self.items.get_mut(id.place())
    }

    /// Appends an entry and returns its key.
    pub(crate) fn push(&mut self, item: T) -> I {
        self.items.push(item);
        I::new(self.items.len() - 1)
    }

    /// Returns the entry with this key, extending the table if it is too short.
    #[inline(always)]
    pub(crate) fn get_or_grow(&mut self, id: I, fresh: impl FnMut() -> T) -> &mut T {
        if self.items.len() <= id.place() {
            self.grow(id, fresh);
        }
        &mut self[id]
    }

    #[cold]
    fn grow(&mut self, id: I, fresh: impl FnMut() -> T) {
        self.items.resize_with(id.place() + 1, fresh);
    }

    /// Returns the key of the first matching entry.
    pub(crate) fn find(&self, is_meant: impl FnMut(&T) -> bool) -> Option<I> {
        self.items.iter().position(is_meant).map(I::new)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.items.iter_mut()
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    pub(crate) fn clear(&mut self) {
        self.items.clear();
    }
}

impl<I: Id, T> Index<I> for SlotMap<I, T> {
    type Output = T;

    /// Returns the entry with this key. This cannot fail: the table either issued the key or was extended for it.
    #[inline(always)]
    fn index(&self, id: I) -> &T {
        debug_assert!(id.place() < self.items.len(), "{id:?} is in the list");
        &self.items[id.place()]
    }
}

impl<I: Id, T> IndexMut<I> for SlotMap<I, T> {
    #[inline(always)]
    fn index_mut(&mut self, id: I) -> &mut T {
        debug_assert!(id.place() < self.items.len(), "{id:?} is in the list");
        &mut self.items[id.place()]
    }
}
