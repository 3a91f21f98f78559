//! Counters of a port that shares memory with another program, in addition to the counters of every live port.

use grosso::reasons;
use grosso_vhost::ring::ChainFault;

use crate::port::PortCounter;

reasons! {
    /// Event on a vhost-user port.
    VhostEvent {
        /// The peer connected to the port, or the port connected to the peer.
        PeerMet = "peer_met",
        /// The peer disconnected or disappeared.
        PeerGone = "peer_gone",
        /// The peer violated the protocol, corrupted a ring or removed memory, and was disconnected.
        PeerCutOff = "peer_cut_off",
        /// A frame was dropped because no peer was connected, or the peer had not started its rings.
        TransmitNoPeer = "tx_no_peer",
        /// A ring entry or a descriptor referred to an invalid descriptor, or one that the device did not own; the
        /// frame was lost.
        RingIndex = "ring_index",
        /// A descriptor chain was too long or endless; the frame was lost.
        RingEndless = "ring_endless",
        /// A descriptor pointed outside the guest's memory; the frame was lost.
        RingOutside = "ring_outside",
        /// A readable descriptor was in a ring of writable buffers, or the reverse; the frame was lost.
        RingDirection = "ring_direction",
        /// An indirect descriptor table had a wrong length or position; the frame was lost.
        RingTable = "ring_table",
        /// A ring claimed more entries than it has, and is ignored until it restarts.
        RingOverrun = "ring_overrun",
        /// A chain had 2^32 bytes or more, or a frame was longer than its buffer; the frame was lost.
        RingLength = "ring_length",
        /// A frame was lost because it exceeded the work limit per frame: all ring entries were invalid, or the driver
        /// kept adding and removing entries.
        RingUnsteady = "ring_unsteady",
        /// A ring had too few buffers for the waiting frame for one second; the frame was lost.
        RingShort = "ring_short",
        /// A memory table or a dirty log was rejected: too many regions, more bytes than may be mapped per guest, a
        /// region outside its file, a log shorter than the memory, or a file that is not in memory.
        MemoryRefused = "memory_refused",
        /// A memory table was rejected because it exceeds the port's `memory=` limit.
        MemoryOverLimit = "memory_over_limit",
        /// The system ran out of descriptors or memory while connecting to the peer. The peer waits or was
        /// disconnected, and the connection is retried.
        SetUpFailed = "setup_failed",
    }
}

impl VhostEvent {
    /// Returns whether frames were lost.
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

    /// Returns the event for a ring fault, or `None` if the fault concerns only a frame.
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

/// Counters of a vhost-user port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VhostStats([u64; VhostEvent::COUNT]);

impl VhostStats {
    /// Returns the number of times that an event occurred.
    #[must_use]
    pub fn events(&self, event: VhostEvent) -> u64 {
        self.0[event as usize]
    }

    /// Returns every counter with its description.
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
