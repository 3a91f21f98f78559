//! Counters of a port on a Unix socket, beside those of every live port.

use grosso::reasons;

use crate::port::PortCounter;

reasons! {
    /// An event at a Unix socket.
    UnixEvent {
        /// Another program was met: it connected, was connected to, or sent the first datagram.
        PeerMet = "peer-met",
        /// The other program hung up, or was gone.
        PeerGone = "peer-gone",
        /// The other program broke the protocol, such as by a frame longer than the longest, and was hung up on.
        PeerCutOff = "peer-cut-off",
        /// The other program hung up in the middle of a frame.
        ReceiveUnfinished = "rx-unfinished",
        /// A frame was dropped because no other program was there.
        TransmitNoPeer = "tx-no-peer",
        /// The other program hung up before it had taken the whole of a frame.
        TransmitUnfinished = "tx-unfinished",
        /// This system had no descriptors or no memory to meet the other program, or for what is shared with it: that
        /// waits or was hung up on, through no fault of its own, and is met anew.
        SetUpFailed = "setup-failed",
    }
}

impl UnixEvent {
    /// Whether a frame is lost by the event.
    const fn is_loss(self) -> bool {
        !matches!(self, Self::PeerMet | Self::PeerGone | Self::SetUpFailed)
    }
}

/// Counters of a Unix socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnixStats([u64; UnixEvent::COUNT]);

impl UnixStats {
    /// Number of times that an event occurred.
    #[must_use]
    pub fn events(&self, event: UnixEvent) -> u64 {
        self.0[event as usize]
    }

    /// Every counter with its description.
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
