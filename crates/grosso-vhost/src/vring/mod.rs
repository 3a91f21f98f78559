//! Split and packed virtqueues in memory, with their notification rules for both sides.

mod packed;
mod split;

pub(crate) use self::{
    packed::{Cursor, IS_AVAILABLE, IS_USED, PackedParts},
    split::SplitParts,
};

/// Side of a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Side {
    /// The device, which uses entries.
    #[default]
    Device,
    /// The driver, which makes entries available.
    Driver,
}

/// Addresses of a ring in the front end's process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// Descriptor table, or descriptor ring of a packed virtqueue.
    pub descriptors: u64,
    /// Used ring, or the device's event suppression area in a packed virtqueue.
    pub used: u64,
    /// Available ring, or the driver's event suppression area in a packed virtqueue.
    pub available: u64,
}

/// A descriptor of a split or packed virtqueue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptor {
    pub(crate) address: u64,
    pub(crate) bytes: u32,
    pub(crate) flags: u16,
    /// Next descriptor of a split virtqueue, or buffer ID of a packed one.
    pub(crate) number: u16,
}

impl Descriptor {
    /// Decodes a split virtqueue's descriptor from two words.
    #[inline]
    pub(crate) fn split([address, rest]: [u64; 2]) -> Self {
        let [flags, number] = [32, 48].map(|at| (rest >> at) as u16);
        Self { address, bytes: rest as u32, flags, number }
    }

    /// Decodes a packed virtqueue's descriptor from two words.
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

/// Maximum number of entries in a virtio ring.
pub const SIZE_MAX: u16 = 32_768;
pub(crate) const DESCRIPTOR_BYTES: usize = 16;
/// The descriptor is followed by another descriptor of its chain.
pub(crate) const HAS_NEXT: u16 = 1;
/// The device writes to the buffer.
pub(crate) const IS_WRITTEN: u16 = 2;
/// The buffer is an indirect descriptor table.
pub(crate) const IS_TABLE: u16 = 4;
