//! Counters of a port on a Unix socket, in addition to the counters of every live port.

use grosso::reasons;

use crate::port::PortCounter;

reasons! {
    /// Event on a Unix socket.
    UnixEvent {
        /// A peer connected, accepted a connection, or sent its first datagram.
        PeerMet = "peer_met",
        /// The peer disconnected or disappeared.
        PeerGone = "peer_gone",
        /// The peer violated the protocol, for example with a frame above the maximum length, and was disconnected.
        PeerCutOff = "peer_cut_off",
        /// The peer disconnected in the middle of a frame.
        ReceiveUnfinished = "rx_unfinished",
        /// A frame was dropped because no peer was connected.
        TransmitNoPeer = "tx_no_peer",
        /// The peer disconnected before it had received a whole frame.
        TransmitUnfinished = "tx_unfinished",
        /// The system ran out of descriptors or memory while connecting to the peer. The peer waits or was
        /// disconnected, and the connection is retried.
        SetUpFailed = "setup_failed",
    }
}

impl UnixEvent {
    /// Returns whether a frame was lost.
    const fn is_loss(self) -> bool {
        !matches!(self, Self::PeerMet | Self::PeerGone | Self::SetUpFailed)
    }
}

/// Counters of a Unix socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnixStats([u64; UnixEvent::COUNT]);

impl UnixStats {
    /// Returns the number of times that an event occurred.
    #[must_use]
    pub fn events(&self, event: UnixEvent) -> u64 {
        self.0[event as usize]
    }

    /// Returns every counter with its description.
    pub fn counters(&self) -> impl Iterator<Item = (PortCounter, u64)> + '_ {
        UnixEvent::ALL.iter().map(|event| {
            let (name, sentence) = (event.name(), event.sentence());
            (PortCounter { name, is_loss: event.is_loss(), sentence }, self.events(*event))
        })
    }

    pub(super) fn count(&mut self, event: UnixEvent, times: u64) {
        self.0[event as usize] += times;
    }
}
