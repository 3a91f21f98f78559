//! IDs of known header stacks.

use crate::coalesce::slots::slot_map::Id;

/// ID of a known header stack, valid until the cache is cleared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShapeId(u32);

impl Id for ShapeId {
    fn new(place: usize) -> Self {
        Self(place as u32)
    }

    fn place(self) -> usize {
        self.0 as usize
    }
}
