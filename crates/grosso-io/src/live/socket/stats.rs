//! Counters of a port that uses sockets.

use grosso::reasons;

use crate::port::PortCounter;

reasons! {
    /// Event on a socket port.
    SocketEvent {
        /// A message was received: one datagram, or several of a flow that the kernel merged.
        ReceiveMessage = "socket_rx_messages",
        /// A datagram was received.
        ReceiveDatagram = "socket_rx_datagrams",
        /// The kernel dropped a datagram for the socket: the buffer was full, or the checksum was wrong, or a required
        /// checksum was missing.
        ReceiveDropped = "socket_rx_dropped",
        /// A received datagram contradicted the kernel's metadata and was dropped.
        ReceiveContradictory = "socket_rx_contradictory",
        /// A received datagram was longer than its buffer, and was dropped.
        ReceiveTruncated = "socket_rx_truncated",
        /// A message was sent: one datagram, or several of a flow (`UDP_SEGMENT`).
        TransmitMessage = "socket_tx_messages",
        /// A datagram was sent.
        TransmitDatagram = "socket_tx_datagrams",
        /// A message of several datagrams was rejected, and each datagram was sent separately.
        TransmitCutAgain = "socket_tx_cut_again",
        /// Messages of several datagrams were disabled, because the kernel or the device cannot segment them.
        TransmitNarrowed = "socket_tx_narrowed",
        /// A frame that the socket cannot send was dropped: it has another protocol, is a fragment, or has other outer
        /// headers.
        TransmitInexpressible = "socket_tx_inexpressible",
        /// A datagram was rejected because of its content and dropped.
        TransmitRefused = "socket_tx_refused",
        /// A datagram longer than the link MTU was fragmented by the kernel although it had DF set.
        TransmitFragmented = "socket_tx_fragmented",
        /// A datagram longer than the link MTU could not be fragmented and was dropped.
        TransmitTooLong = "socket_tx_too_long",
        /// An ICMP message reported a smaller path MTU and quoted a packet that was sent; the path MTU is updated.
        PathProven = "socket_path_proven",
        /// An ICMP message reported a smaller path MTU without quoting a recently sent packet, as a forged message
        /// would; the message is ignored.
        PathUnproven = "socket_path_unproven",
        /// An ICMP message reported a smaller path MTU, but an echo request of full length was answered; the message is
        /// ignored.
        PathRefuted = "socket_path_refuted",
        /// Echo requests of full length were lost and short ones answered; longer packets are now fragmented.
        PathNarrow = "socket_path_narrow",
        /// No echo request was answered, long or short; the path MTU is known from ICMP messages only.
        PathSilent = "socket_path_silent",
        /// A datagram was dropped because the remote endpoint was unreachable, or the interface was down.
        TransmitUnreachable = "socket_tx_unreachable",
        /// A datagram was dropped because the kernel had no memory for it.
        TransmitNoMemory = "socket_tx_no_memory",
    }
}

impl SocketEvent {
    /// Returns whether a datagram was lost.
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
    /// Returns the number of times that an event occurred.
    #[must_use]
    pub fn events(&self, event: SocketEvent) -> u64 {
        self.0[event as usize]
    }

    /// Returns the number of datagrams that were longer than the link MTU.
    pub(in crate::live) fn too_long(&self) -> u64 {
        self.events(SocketEvent::TransmitFragmented) + self.events(SocketEvent::TransmitTooLong)
    }

    /// Returns every counter with its description.
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
