//! Parts of a ring in memory, and the rules by which each side of it tells the other, for each form that a ring has.

mod packed;
mod split;

pub(crate) use self::{
    packed::{Cursor, IS_AVAILABLE, IS_USED, PackedParts},
    split::SplitParts,
};

/// Side of a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Side {
    /// The device uses entries.
    #[default]
    Device,
    /// The driver makes entries available.
    Driver,
}

/// Addresses of a ring in the front end's process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// Descriptor table, or descriptor ring of a packed virtqueue.
    pub descriptors: u64,
    /// Used ring; in a packed virtqueue, the device's event suppression area.
    pub used: u64,
    /// Available ring; in a packed virtqueue, the driver's event suppression area.
    pub available: u64,
}

/// A descriptor of either form, as it was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptor {
    pub(crate) address: u64,
    pub(crate) bytes: u32,
    pub(crate) flags: u16,
    /// The next descriptor of a split ring, or the number of an entry of a packed one.
    pub(crate) number: u16,
}

impl Descriptor {
    /// A descriptor of a split ring of its two words.
    #[inline]
    pub(crate) fn split([address, rest]: [u64; 2]) -> Self {
        let [flags, number] = [32, 48].map(|at| (rest >> at) as u16);
        Self { address, bytes: rest as u32, flags, number }
    }

    /// A descriptor of a packed ring of its two words.
    #[inline]
    pub(crate) fn packed([address, rest]: [u64; 2]) -> Self {
        let [number, flags] = [32, 48].map(|at| (rest >> at) as u16);
        Self { address, bytes: rest as u32, flags, number }
    }

    #[inline]
    pub(crate) fn has(self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// Maximum number of entries of a ring in virtio.
pub const SIZE_MAX: u16 = 32_768;
/// Bytes of a descriptor.
pub(crate) const DESCRIPTOR_BYTES: usize = 16;
/// The descriptor has a next one.
pub(crate) const HAS_NEXT: u16 = 1;
/// Its bytes are for the device to write.
pub(crate) const IS_WRITTEN: u16 = 2;
/// Its bytes are a table of descriptors.
pub(crate) const IS_TABLE: u16 = 4;
