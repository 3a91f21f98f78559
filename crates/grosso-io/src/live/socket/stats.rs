//! Counters of a port on sockets.

use grosso::reasons;

use crate::port::PortCounter;

reasons! {
    /// An event of datagrams at a socket port.
    SocketEvent {
        /// A message was read: one datagram, or several of a flow that the kernel merged.
        ReceiveMessage = "socket-rx-messages",
        /// A datagram was received.
        ReceiveDatagram = "socket-rx-datagrams",
        /// The kernel dropped a datagram for the socket: no room, a wrong checksum, or a missing one
        /// where one is required.
        ReceiveDropped = "socket-rx-dropped",
        /// A received datagram contradicted the kernel's metadata, and was dropped.
        ReceiveContradictory = "socket-rx-contradictory",
        /// A received datagram was longer than its buffer, and was dropped.
        ReceiveTruncated = "socket-rx-truncated",
        /// A message was sent: one datagram, or several of a flow (`UDP_SEGMENT`).
        TransmitMessage = "socket-tx-messages",
        /// A datagram was sent.
        TransmitDatagram = "socket-tx-datagrams",
        /// A message of several datagrams was refused, and each was sent alone.
        TransmitCutAgain = "socket-tx-cut-again",
        /// Sending several datagrams as one message was given up, because the kernel or the device
        /// cannot segment them.
        TransmitNarrowed = "socket-tx-narrowed",
        /// A frame was dropped that the socket cannot send: another protocol, a fragment, or other
        /// outer headers.
        TransmitInexpressible = "socket-tx-inexpressible",
        /// A datagram was refused because of its contents, and dropped.
        TransmitRefused = "socket-tx-refused",
        /// A datagram was longer than the link carries, and was left to the kernel to fragment
        /// although it forbade that.
        TransmitFragmented = "socket-tx-fragmented",
        /// A datagram was longer than the link carries and could not be fragmented, and was dropped.
        TransmitTooLong = "socket-tx-too-long",
        /// A message said that the path does not carry packets as long as those sent, and quoted one of them: it is
        /// believed.
        PathProven = "socket-path-proven",
        /// A message said so and quoted no packet that was sent lately, as a forged one does: it changes nothing.
        PathUnproven = "socket-path-unproven",
        /// A message said so, or the kernel was told so, and an echo request as long as the longest packets was
        /// answered: it changes nothing.
        PathRefuted = "socket-path-refuted",
        /// Echo requests as long as the longest packets were lost, and short ones answered: longer packets leave in
        /// fragments.
        PathNarrow = "socket-path-narrow",
        /// No echo request was answered, long or short: of the path nothing is known but what messages say.
        PathSilent = "socket-path-silent",
        /// A datagram was dropped because the other end was unreachable, or the interface was down.
        TransmitUnreachable = "socket-tx-unreachable",
        /// A datagram was dropped because the kernel had no memory for it.
        TransmitNoMemory = "socket-tx-no-memory",
    }
}

impl SocketEvent {
    /// Whether a datagram is lost by the event.
    const fn is_loss(self) -> bool {
        !matches!(
            self,
            Self::ReceiveMessage
                | Self::ReceiveDatagram
                | Self::TransmitMessage
                | Self::TransmitDatagram
                | Self::TransmitCutAgain
                | Self::TransmitNarrowed
                | Self::TransmitFragmented
                | Self::PathProven
                | Self::PathUnproven
                | Self::PathRefuted
                | Self::PathNarrow
                | Self::PathSilent
        )
    }
}

/// Counters of a socket port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketStats([u64; SocketEvent::COUNT]);

impl SocketStats {
    /// Number of times that an event occurred.
    #[must_use]
    pub fn events(&self, event: SocketEvent) -> u64 {
        self.0[event as usize]
    }

    /// Number of datagrams that were longer than the link carries.
    pub(in crate::live) fn too_long(&self) -> u64 {
        self.events(SocketEvent::TransmitFragmented) + self.events(SocketEvent::TransmitTooLong)
    }

    /// Every counter with its description.
    pub fn counters(&self) -> impl Iterator<Item = (PortCounter, u64)> + '_ {
        SocketEvent::ALL.iter().map(|event| {
            let (name, sentence) = (event.name(), event.sentence());
            (PortCounter { name, is_loss: event.is_loss(), sentence }, self.events(*event))
        })
    }

    pub(in crate::live) fn count(&mut self, event: SocketEvent, times: u64) {
        self.0[event as usize] += times;
    }
}
