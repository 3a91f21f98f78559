//! Counters of a port on sockets.

use crate::port::PortCounter;

/// Declares the events with their short names, and whether a datagram is lost by each.
macro_rules! events {
    ($($(#[doc = $sentence:literal])+ $variant:ident = $name:literal, $is_loss:literal;)+) => {
        /// An event of datagrams at a socket port.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum SocketEvent {
            $($(#[doc = $sentence])+ $variant,)+
        }

        impl SocketEvent {
            /// Every event.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The counter of the event, with its description.
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
    /// A message was read: one datagram, or several of a flow that the kernel merged.
    ReceiveMessage = "socket-rx-messages", false;
    /// A datagram was received.
    ReceiveDatagram = "socket-rx-datagrams", false;
    /// The kernel dropped a datagram for the socket: no room, a wrong checksum, or a missing one
    /// where one is required.
    ReceiveDropped = "socket-rx-dropped", true;
    /// A received datagram contradicted the kernel's metadata, and was dropped.
    ReceiveContradictory = "socket-rx-contradictory", true;
    /// A received datagram was longer than its buffer, and was dropped.
    ReceiveTruncated = "socket-rx-truncated", true;
    /// A message was sent: one datagram, or several of a flow (`UDP_SEGMENT`).
    TransmitMessage = "socket-tx-messages", false;
    /// A datagram was sent.
    TransmitDatagram = "socket-tx-datagrams", false;
    /// A message of several datagrams was refused, and each was sent alone.
    TransmitCutAgain = "socket-tx-cut-again", false;
    /// Sending several datagrams as one message was given up, because the kernel or the device
    /// cannot segment them.
    TransmitNarrowed = "socket-tx-narrowed", false;
    /// A frame was dropped that the socket cannot send: another protocol, a fragment, or other
    /// outer headers.
    TransmitInexpressible = "socket-tx-inexpressible", true;
    /// A datagram was refused because of its contents, and dropped.
    TransmitRefused = "socket-tx-refused", true;
    /// A datagram was longer than the path MTU, and was dropped.
    TransmitTooLong = "socket-tx-too-long", true;
    /// A datagram was dropped because the other end was unreachable, or the interface was down.
    TransmitUnreachable = "socket-tx-unreachable", true;
    /// A datagram was dropped because the kernel had no memory for it.
    TransmitNoMemory = "socket-tx-no-memory", true;
}

/// Counters of a socket port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketStats([u64; SocketEvent::ALL.len()]);

impl SocketStats {
    /// Number of times that an event occurred.
    #[must_use]
    pub fn events(&self, event: SocketEvent) -> u64 {
        self.0[event as usize]
    }

    /// Every counter with its description.
    pub fn counters(&self) -> impl Iterator<Item = (PortCounter, u64)> + '_ {
        SocketEvent::ALL.iter().map(|event| (event.counter(), self.events(*event)))
    }

    pub(in crate::live) fn count(&mut self, event: SocketEvent, times: u64) {
        self.0[event as usize] += times;
    }
}
