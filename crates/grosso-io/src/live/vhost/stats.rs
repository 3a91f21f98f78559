//! Counters of a port that shares memory with another program, beside those of every live port.

use grosso::reasons;
use grosso_vhost::ring::ChainFault;

use crate::port::PortCounter;

reasons! {
    /// An event at a port that shares memory with another program.
    VhostEvent {
        /// The other program was met: it connected, or was connected to.
        PeerMet = "peer-met",
        /// The other program hung up, or was gone.
        PeerGone = "peer-gone",
        /// The other program broke the protocol or a ring, or took memory away, and was hung up on.
        PeerCutOff = "peer-cut-off",
        /// A frame was dropped because no other program was there, or its rings had not begun.
        TransmitNoPeer = "tx-no-peer",
        /// An entry of a ring, or a descriptor, named no descriptor, or one that the device did not have; what it was
        /// for was lost.
        RingIndex = "ring-index",
        /// A chain of descriptors was longer than can be, or had no end; what it was for was lost.
        RingEndless = "ring-endless",
        /// A descriptor was of memory that the machine does not have; what it was for was lost.
        RingOutside = "ring-outside",
        /// A descriptor to be read was in a ring of buffers to be written, or the reverse; what it was for was lost.
        RingDirection = "ring-direction",
        /// A table of descriptors had a wrong length or place; what it was for was lost.
        RingTable = "ring-table",
        /// A ring claimed more entries than it has, and is left alone until it begins anew.
        RingOverrun = "ring-overrun",
        /// A chain had 2^32 bytes or more, or a frame more than its buffer; what it was for was lost.
        RingLength = "ring-length",
        /// A frame found nothing but wrong entries, or a driver that added entries and took them back again, and made
        /// more work than a frame may; the frame was lost.
        RingUnsteady = "ring-unsteady",
        /// A ring had buffers for a second, too few for the frame that waited for more; the frame was lost.
        RingShort = "ring-short",
        /// A table of memory, or a dirty log, was refused: too many regions, more bytes than are mapped for a guest, a
        /// region outside its file, a log that ends before the memory, or a file that is not in memory.
        MemoryRefused = "memory-refused",
        /// A table of memory was refused because it has more bytes than the port's memory= allows.
        MemoryOverLimit = "memory-over-limit",
        /// This system had no descriptors or no memory to meet the other program, or for what is shared with it: that
        /// waits or was hung up on, through no fault of its own, and is met anew.
        SetUpFailed = "setup-failed",
    }
}

impl VhostEvent {
    /// Whether frames are lost by the event.
    const fn is_loss(self) -> bool {
        !matches!(
            self,
            Self::PeerMet
                | Self::PeerGone
                | Self::MemoryRefused
                | Self::MemoryOverLimit
                | Self::SetUpFailed
        )
    }

    /// The event of a defect; `None` if it is one of a frame.
    pub(super) const fn of(fault: ChainFault) -> Option<Self> {
        Some(match fault {
            ChainFault::Index => Self::RingIndex,
            ChainFault::Endless => Self::RingEndless,
            ChainFault::Outside => Self::RingOutside,
            ChainFault::Direction => Self::RingDirection,
            ChainFault::Table => Self::RingTable,
            ChainFault::Length => Self::RingLength,
            ChainFault::Overrun => Self::RingOverrun,
            ChainFault::TooLong => return None,
        })
    }
}

/// Counters of a port that shares memory with another program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VhostStats([u64; VhostEvent::COUNT]);

impl VhostStats {
    /// Number of times that an event occurred.
    #[must_use]
    pub fn events(&self, event: VhostEvent) -> u64 {
        self.0[event as usize]
    }

    /// Every counter with its description.
    pub fn counters(&self) -> impl Iterator<Item = (PortCounter, u64)> + '_ {
        VhostEvent::ALL.iter().map(|event| {
            let (name, sentence) = (event.name(), event.sentence());
            (PortCounter { name, is_loss: event.is_loss(), sentence }, self.events(*event))
        })
    }

    pub(super) fn count(&mut self, event: VhostEvent) {
        self.0[event as usize] += 1;
    }
}
