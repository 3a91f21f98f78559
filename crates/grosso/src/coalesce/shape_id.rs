//! Identities of known header stacks.

/// Names a header stack among the known ones until all of them are forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShapeId(u32);

impl ShapeId {
    /// The header stack in this place of the list.
    #[inline(always)]
    pub(super) fn new(place: usize) -> Self {
        Self(place as u32)
    }

    /// Its place in the list.
    #[inline(always)]
    pub(super) fn place(self) -> usize {
        self.0 as usize
    }
}
