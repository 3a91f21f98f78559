//! The device's side of a virtqueue in a guest's memory, split or packed.
//!
//! All values are checked each time they are read: indices against the size of the ring, chains against the number of
//! descriptors, and addresses against the memory. An invalid entry is returned unused if it can be identified, and
//! processing continues with the next entry.

mod packed;
mod pieces;
mod split;

use std::{io::IoSlice, sync::Arc};

pub use self::pieces::PIECES_MAX;
pub(crate) use self::pieces::{Piece, fill};
use self::{packed::PackedRing, pieces::Pieces, split::SplitRing};
pub use crate::vring::{Addresses, SIZE_MAX, Side};
use crate::{
    features::{EVENT_INDEX, RING_PACKED},
    memory::Memory,
    vring::{PackedParts, SplitParts},
};

/// Fault in one ring entry. The guest loses this entry's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChainFault {
    /// The entry or a descriptor refers to a descriptor outside the table.
    Index,
    /// A frame has more descriptors than [`PIECES_MAX`], or a chain has more descriptors than its table, which means
    /// that the chain is a loop.
    Endless,
    /// An address is outside the guest's memory.
    Outside,
    /// A readable descriptor is in a ring of writable buffers, or a writable descriptor is in a ring of readable
    /// buffers.
    Direction,
    /// An indirect table has a wrong length, is nested, or is followed by another descriptor.
    Table,
    /// A chain is 2^32 bytes long or more, which virtio forbids (virtio 1.3 section 2.7.5).
    Length,
    /// A frame is longer than the buffer for it.
    TooLong,
    /// The driver reported more available entries than the ring has. The ring cannot be trusted, and is ignored until
    /// the front end sets it up again.
    Overrun,
}

/// Result of sending a frame to a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The frame is in the guest's buffers.
    Whole,
    /// There is currently no room in the guest's buffers.
    NoRoom,
    /// There can never be room in the guest's buffers for a frame of this length.
    TooLong,
    /// An entry was invalid. The frame may be offered again.
    Fault(ChainFault),
}

/// Start position of a ring, encoded as in vhost-user messages. For a split virtqueue, this is a 16-bit index. For a
/// packed virtqueue, it is the available index in the lower half and the used index in the upper half, each consisting
/// of 15 bits and a wrap counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// Position from a front end, which may not know how far a previous device got before it died. For a packed ring,
    /// the position is determined from the ring itself instead.
    Told(u32),
    /// Position that this device had reached when it stopped using the ring.
    Left(u32),
}

/// A virtqueue in a guest's memory.
#[derive(Debug)]
pub struct Ring {
    form: Form,
    /// Buffers of the current chains.
    pieces: Pieces,
    /// Current chains.
    chains: Vec<Chain>,
}

/// Negotiated type of virtqueue.
#[derive(Debug)]
enum Form {
    Split(SplitRing),
    Packed(PackedRing),
}

/// Evaluates an expression for either type of virtqueue.
macro_rules! of {
    ($form:expr, $ring:ident => $result:expr) => {
        match $form {
            Form::Split($ring) => $result,
            Form::Packed($ring) => $result,
        }
    };
}

/// A chain of descriptors that holds the current frame, or a part of it.
#[derive(Clone, Copy, Debug)]
struct Chain {
    /// ID under which the chain is returned to the driver.
    number: u16,
    /// Number of consecutive ring descriptors that the entry occupies.
    slots: u16,
    /// Capacity of the chain or length of its content in bytes. After a write, this is the number of bytes written.
    bytes: u32,
}

/// A chain taken from the ring, and the fault found in it, if any.
#[derive(Clone, Copy, Debug)]
struct Taken {
    chain: Chain,
    fault: Option<ChainFault>,
}

impl Taken {
    /// Creates a chain with the result of walking it.
    fn new(number: u16, slots: u16, walked: Result<u32, ChainFault>) -> Self {
        let bytes = walked.unwrap_or(0);
        Self { chain: Chain { number, slots, bytes }, fault: walked.err() }
    }
}

impl Ring {
    /// Opens a ring of `size` entries at these addresses. The features determine whether it is split or packed. Returns
    /// `None` if the ring does not lie entirely in the memory, or if the size or position is invalid.
    #[must_use]
    pub fn new(
        memory: &Arc<Memory>,
        addresses: &Addresses,
        size: u16,
        base: Base,
        features: u64,
    ) -> Option<Self> {
        let event_index = features & EVENT_INDEX != 0;
        let form = if features & RING_PACKED == 0 {
            let parts = SplitParts::new(memory, addresses, size, Side::Device, event_index)?;
            Form::Split(SplitRing::new(parts, size, base)?)
        } else {
            let parts = PackedParts::new(memory, addresses, size, Side::Device, event_index)?;
            Form::Packed(PackedRing::new(parts, base))
        };
        Some(Self { form, pieces: Pieces::new(memory), chains: Vec::new() })
    }

    /// Returns whether the driver reported more available entries than the ring has. If so, the ring is ignored.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        of!(&self.form, ring => ring.is_broken())
    }

    /// Returns the position of the next entry encoded as in vhost-user messages; see [`Base`].
    #[must_use]
    pub fn base(&self) -> u32 {
        of!(&self.form, ring => ring.base())
    }

    /// Returns the number of entries that are known to be available. For a packed ring, returns the number of
    /// descriptors.
    #[must_use]
    pub fn offered(&self) -> u16 {
        of!(&self.form, ring => ring.offered())
    }

    /// Returns the number of descriptors read since the last call, which is a measure of the work that the guest has
    /// caused.
    pub fn take_walked(&mut self) -> usize {
        core::mem::take(&mut self.pieces.walked)
    }

    /// Copies the next frame from the guest, including its virtio header. Returns `None` if there is none.
    ///
    /// # Errors
    /// Returns the fault in the next entry, which is skipped.
    pub fn receive(&mut self, into: &mut [u8]) -> Result<Option<usize>, ChainFault> {
        self.pieces.begin(false);
        let taken = of!(&mut self.form, ring => {
            ring.begin();
            let taken = ring.take(&mut self.pieces)?;
            if let Some(address) = ring.ahead() {
                self.pieces.fetch(address);
            }
            taken
        });
        let Some(Taken { chain, fault }) = taken else { return Ok(None) };
        let bytes = chain.bytes as usize;
        let copied = fault.map_or_else(|| self.pieces.copy(bytes, into), Err);
        of!(&mut self.form, ring => ring.give_back(&[Chain { bytes: 0, ..chain }]));
        copied.map(|()| Some(bytes))
    }

    /// Copies a frame into one of the guest's buffers, or, if `mergeable` is set, into as many buffers as needed. The
    /// first part starts with a virtio header of `header_bytes` bytes, in which this function fills in the number of
    /// buffers if the header has such a field.
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
        if !self.pieces.fill(all) {
            // Not expected, because the addresses were checked and the front end has not removed any memory since.
            return self.refuse(ChainFault::Outside);
        }
        self.give_back(bytes);
        Sent::Whole
    }

    /// Publishes used entries to the driver. Returns whether the driver must be interrupted.
    pub fn publish(&mut self) -> bool {
        of!(&mut self.form, ring => ring.publish())
    }

    /// Requests a notification for the next available entry. Returns whether entries became available in the meantime.
    #[must_use]
    pub fn ask(&mut self) -> bool {
        !self.is_broken() && of!(&mut self.form, ring => ring.ask())
    }

    /// Disables notifications from the driver.
    pub fn hush(&mut self) {
        of!(&mut self.form, ring => ring.hush());
    }

    /// Takes as many chains as a frame needs, or none if there are too few.
    fn gather(&mut self, bytes: usize, mergeable: bool) -> Sent {
        self.pieces.begin(true);
        self.chains.clear();
        let Self { form, pieces, chains } = self;
        let mut room = 0_usize;
        of!(&mut *form, ring => ring.begin());
        while room < bytes || chains.is_empty() {
            let taken = of!(&mut *form, ring => ring.take(pieces));
            let fault = match taken {
                Ok(Some(taken)) => {
                    chains.push(taken.chain);
                    room = room.saturating_add(taken.chain.bytes as usize);
                    taken.fault
                }
                Ok(None) => {
                    return of!(form, ring => {
                        let has_all = ring.has_all();
                        ring.undo();
                        if has_all { Sent::TooLong } else { Sent::NoRoom }
                    });
                }
                Err(fault) => Some(fault),
            };
            if let Some(fault) = fault {
                return self.refuse(fault);
            }
            if room < bytes && !mergeable {
                // The entry stays available for a shorter frame.
                of!(form, ring => ring.undo());
                return Sent::TooLong;
            }
        }
        Sent::Whole
    }

    /// Returns the current entries to the driver unused.
    fn refuse(&mut self, fault: ChainFault) -> Sent {
        if fault != ChainFault::Overrun {
            self.give_back(0);
        }
        Sent::Fault(fault)
    }

    /// Returns the current entries to the driver, after `bytes` bytes were written into them.
    fn give_back(&mut self, bytes: usize) {
        let mut left = bytes;
        for chain in &mut self.chains {
            chain.bytes = chain.bytes.min(u32::try_from(left).unwrap_or(u32::MAX));
            left -= chain.bytes as usize;
        }
        of!(&mut self.form, ring => ring.give_back(&self.chains));
    }
}

/// Distance in entries between the frame being read and the one being prefetched.
pub(crate) const FETCHED_AHEAD: u16 = 4;
/// Offset, in a virtio header, of the field that contains the number of buffers.
const BUFFERS: usize = 10;
/// Length of the longest virtio header in bytes, which is accessed with atomic words.
pub(crate) const HEADER_BYTES_MAX: usize = 24;
