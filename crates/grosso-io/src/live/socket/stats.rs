//! What a port on sockets counts.

use crate::port::PortCounter;

/// Declares the events with their short names, and whether a datagram is lost by each.
macro_rules! events {
    ($($(#[doc = $sentence:literal])+ $variant:ident = $name:literal, $is_loss:literal;)+) => {
        /// Something that befell datagrams of a socket port.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum SocketEvent {
            $($(#[doc = $sentence])+ $variant,)+
        }

        impl SocketEvent {
            /// Every event.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// What it is as a counter.
            #[must_use]
            pub const fn counter(self) -> PortCounter {
                match self {
                    $(Self::$variant => PortCounter {
                        name: $name,
                        is_loss: $is_loss,
                        sentence: concat!($($sentence),+).trim_ascii(),
                    },)+
                }
            }
        }
    };
}

events! {
    /// A message was read: one datagram, or several of a flow that the kernel joined.
    ReceiveMessage = "socket-rx-messages", false;
    /// A datagram was received.
    ReceiveDatagram = "socket-rx-datagrams", false;
    /// The kernel dropped a datagram that was for the socket: no room, a wrong checksum, or none where one is wanted.
    ReceiveDropped = "socket-rx-dropped", true;
    /// A received datagram was not what the kernel said of it, and was dropped.
    ReceiveContradictory = "socket-rx-contradictory", true;
    /// A received datagram was longer than its buffer, and was dropped.
    ReceiveTruncated = "socket-rx-truncated", true;
    /// A message was sent: one datagram, or several of a flow (`UDP_SEGMENT`).
    TransmitMessage = "socket-tx-messages", false;
    /// A datagram was sent.
    TransmitDatagram = "socket-tx-datagrams", false;
    /// A message of several datagrams was refused, and each was sent alone.
    TransmitCutAgain = "socket-tx-cut-again", false;
    /// Sending several datagrams as one message was given up, because the kernel or the device cannot.
    TransmitNarrowed = "socket-tx-narrowed", false;
    /// A frame was dropped that the socket cannot make: another protocol, a fragment, or other headers around it.
    TransmitInexpressible = "socket-tx-inexpressible", true;
    /// A datagram was refused for what it is, and dropped.
    TransmitRefused = "socket-tx-refused", true;
    /// A datagram was longer than the path to the other end takes, and was dropped.
    TransmitTooLong = "socket-tx-too-long", true;
    /// A datagram was dropped because there was no way to the other end, or the interface was down.
    TransmitUnreachable = "socket-tx-unreachable", true;
    /// A datagram was dropped because the kernel had no memory for it.
    TransmitNoMemory = "socket-tx-no-memory", true;
}

/// What a socket port counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketStats([u64; SocketEvent::ALL.len()]);

impl SocketStats {
    /// How often an event happened.
    #[must_use]
    pub fn events(&self, event: SocketEvent) -> u64 {
        self.0[event as usize]
    }

    /// Every counter with what it is.
    pub fn counters(&self) -> impl Iterator<Item = (PortCounter, u64)> + '_ {
        SocketEvent::ALL.iter().map(|event| (event.counter(), self.events(*event)))
    }

    pub(in crate::live) fn count(&mut self, event: SocketEvent, times: u64) {
        self.0[event as usize] += times;
    }
}
