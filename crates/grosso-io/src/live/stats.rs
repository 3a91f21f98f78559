//! Counters of live ports, by name.

use grosso::{reasons, vnet::VnetError};

use crate::port::PortCounter;

reasons! {
    /// Event on a live port.
    LiveEvent {
        /// A received frame was longer than its buffer, or than its slot while the socket buffer was full
        /// (`rx-buf-len`), and was dropped.
        ReceiveTruncated = "rx_truncated",
        /// The kernel dropped a frame that its own virtio header cannot express (rule V20).
        ReceiveInexpressible = "rx_inexpressible",
        /// The kernel dropped a frame because the receive ring was full; a larger `rx` makes the ring longer.
        ReceiveRingFull = "rx_ring_full",
        /// A frame was dropped from a receive ring that ran full, because its flow exceeded its fair share; a larger
        /// `rx` makes the ring longer.
        ReceiveRingShare = "rx_ring_share",
        /// The kernel wrote invalid values to a slot of the ring.
        ReceiveMalformed = "rx_malformed",
        /// A superframe was rejected, and its packets were sent instead (B31).
        TransmitCutAgain = "tx_cut_again",
        /// A feature was disabled because the kernel rejected superframes that need it (B31).
        TransmitNarrowed = "tx_narrowed",
        /// A frame was rejected because of its content and dropped.
        TransmitRefused = "tx_refused",
        /// A frame was longer than the device accepts and was dropped.
        TransmitTooLong = "tx_too_long",
        /// A frame with an outer 802.1ad tag was longer than the device accepts because of its tags, and was dropped.
        /// Packet sockets do not add room for that tag: use `ip link set DEV mtu 1504` if the MTU is 1500.
        TransmitServiceTag = "tx_service_tag",
        /// A frame was dropped because the interface was down.
        TransmitDown = "tx_down",
        /// A frame was dropped because the kernel had no memory for it.
        TransmitNoMemory = "tx_no_memory",
        /// The kernel gave the port no transmit ring, for example because it had no memory for one. Packets are sent
        /// with `sendmmsg(2)` instead, which takes more CPU time.
        TransmitNoRing = "tx_no_ring",
    }
}

impl LiveEvent {
    /// Returns whether a frame was lost.
    #[must_use]
    pub const fn is_loss(self) -> bool {
        !matches!(self, Self::TransmitCutAgain | Self::TransmitNarrowed | Self::TransmitNoRing)
    }
}

/// Counters of a live port.
///
/// ```
/// let stats = grosso_io::live::LiveStats::default();
/// stats.named().for_each(|(name, count)| println!("{name} {count}"));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveStats {
    events: [u64; LiveEvent::COUNT],
    refused: [u64; VnetError::COUNT],
}

impl LiveStats {
    /// Returns the number of times that an event occurred.
    #[must_use]
    pub fn events(&self, event: LiveEvent) -> u64 {
        self.events[event as usize]
    }

    /// Returns the number of frames that were dropped because their virtio header had this error.
    #[must_use]
    pub fn refused(&self, error: VnetError) -> u64 {
        self.refused[error as usize]
    }

    /// Returns every counter with its name.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let events = LiveEvent::ALL.iter().map(|event| (event.name(), self.events(*event)));
        events.chain(VnetError::ALL.iter().map(|error| (error.name(), self.refused(*error))))
    }

    /// Returns every counter with its description.
    pub fn counters(&self) -> impl Iterator<Item = (PortCounter, u64)> + '_ {
        let events = LiveEvent::ALL.iter().map(|event| {
            let (name, sentence) = (event.name(), event.sentence());
            (PortCounter { name, is_loss: event.is_loss(), sentence }, self.events(*event))
        });
        let refused = VnetError::ALL.iter().map(|error| {
            let (name, sentence) = (error.name(), error.sentence());
            (PortCounter { name, is_loss: true, sentence }, self.refused(*error))
        });
        events.chain(refused)
    }

    /// Returns the sum of two sets of counters, for example of the two halves of a device.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        let sum = |to: &mut [u64], from: &[u64]| {
            to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        };
        sum(&mut self.events, &other.events);
        sum(&mut self.refused, &other.refused);
        self
    }

    pub(crate) fn count(&mut self, event: LiveEvent, times: u64) {
        self.events[event as usize] += times;
    }

    pub(crate) fn refuse(&mut self, error: VnetError) {
        self.refused[error as usize] += 1;
    }
}
