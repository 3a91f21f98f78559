//! Lists whose places have names of a type of their own.

use alloc::vec::Vec;
use core::{
    fmt::Debug,
    marker::PhantomData,
    ops::{Index, IndexMut},
};

/// A name of a place.
pub(crate) trait Id: Copy + Debug {
    fn new(place: usize) -> Self;
    fn place(self) -> usize;
}

/// A list with something for each name of one kind. No other number is a place in it.
#[derive(Clone, Debug)]
pub(crate) struct ById<I, T> {
    items: Vec<T>,
    id: PhantomData<I>,
}

impl<I, T> Default for ById<I, T> {
    fn default() -> Self {
        Self { items: Vec::new(), id: PhantomData }
    }
}

impl<I: Id, T> ById<I, T> {
    #[inline(always)]
    pub(crate) fn get(&self, id: I) -> Option<&T> {
        self.items.get(id.place())
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self, id: I) -> Option<&mut T> {
        self.items.get_mut(id.place())
    }

    /// Adds one, and gives its name.
    pub(crate) fn push(&mut self, item: T) -> I {
        self.items.push(item);
        I::new(self.items.len() - 1)
    }

    /// The entry of this name, made with all before it if the list is shorter.
    #[inline(always)]
    pub(crate) fn get_or_grow(&mut self, id: I, fresh: impl FnMut() -> T) -> &mut T {
        if self.items.len() <= id.place() {
            self.grow(id, fresh);
        }
        &mut self[id]
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, id: I, fresh: impl FnMut() -> T) {
        self.items.resize_with(id.place() + 1, fresh);
    }

    /// The name of the first that is meant.
    pub(crate) fn find(&self, is_meant: impl FnMut(&T) -> bool) -> Option<I> {
        self.items.iter().position(is_meant).map(I::new)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.items.iter_mut()
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    pub(crate) fn clear(&mut self) {
        self.items.clear();
    }
}

impl<I: Id, T> Index<I> for ById<I, T> {
    type Output = T;

    /// The entry of a name that the list gave, or for which it grew: this cannot fail.
    #[inline(always)]
    fn index(&self, id: I) -> &T {
        debug_assert!(id.place() < self.items.len(), "{id:?} is in the list");
        &self.items[id.place()]
    }
}

impl<I: Id, T> IndexMut<I> for ById<I, T> {
    #[inline(always)]
    fn index_mut(&mut self, id: I) -> &mut T {
        debug_assert!(id.place() < self.items.len(), "{id:?} is in the list");
        &mut self.items[id.place()]
    }
}
