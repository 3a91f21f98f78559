//! Counters of one direction of a data path, and sizes of frames on the wire.

use grosso::{
    Meta,
    checksum::Checksum,
    expand::Unexpanded,
    meta::{Gso, GsoSize},
};
use grosso_wire::{Kind, Stack};

/// Counters of one direction of a data path.
///
/// A frame is one buffer of a port; a packet is one packet on the wire. A superframe counts as one frame, and also as
/// the packets that it represents, each with its own headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DirectionStats {
    /// Number of frames received.
    pub rx_frames: u64,
    /// Number of bytes received.
    pub rx_bytes: u64,
    /// Number and size of the wire packets that the received frames represent.
    pub rx_wire: WireSize,
    /// Number of received frames by the checksum state that the port reported, in the order of [`RxCsum::ALL`].
    pub rx_checksums: [u64; RxCsum::ALL.len()],
    /// Number of frames transmitted.
    pub tx_frames: u64,
    /// Number of bytes transmitted.
    pub tx_bytes: u64,
    /// Number and size of the wire packets that the transmitted frames represent.
    pub tx_wire: WireSize,
    /// Number of transmitted frames that reached this path with a partial checksum. The path, the port, or the port's
    /// device completes the checksum.
    pub tx_partial: u64,
    /// Number of transmitted frames that reached this path with complete checksums.
    pub tx_complete: u64,
    /// Number and size of the superframes created, by protocol in the order of [`Protocol::ALL`].
    pub joined: [Superframes; Protocol::ALL.len()],
    /// Number of superframes segmented because the port does not accept them.
    pub cut: u64,
    /// Total length in bytes of the superframes that were segmented.
    pub cut_bytes: u64,
    /// Number and size of the packets that superframes were segmented into.
    pub cut_wire: WireSize,
    /// Number of partial checksums completed because the port does not accept them.
    pub completed: u64,
    /// Number of superframes that could not be segmented and were transmitted unchanged.
    pub uncut: u64,
    /// Number of acknowledgments that were expanded, that is, replaced by several acknowledgments.
    pub acknowledgments_expanded: u64,
    /// Number of acknowledgments that resulted from expanding an acknowledgment. The original is also counted; it is
    /// sent last.
    pub acknowledgments_expanded_into: u64,
    /// Number of acknowledgments that confirmed merged packets but were not expanded, by reason.
    pub acknowledgments_unexpanded: [u64; Unexpanded::COUNT],
    /// Number of times that the port had no room for a frame.
    pub no_room: u64,
}

/// Number and size of superframes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Superframes {
    /// Number of superframes.
    pub frames: u64,
    /// Total length of the superframes in bytes. The headers of each superframe are counted once.
    pub bytes: u64,
    /// Number and size of the wire packets that the superframes represent.
    pub wire: WireSize,
}

impl Superframes {
    pub(crate) fn count(&mut self, len: usize, wire: WireSize) {
        self.frames += 1;
        self.bytes += len as u64;
        self.wire.add(wire);
    }
}

/// Number and size of packets on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireSize {
    /// Number of packets.
    pub packets: u64,
    /// Total length of the packets in bytes, including the headers of each packet.
    pub bytes: u64,
}

impl WireSize {
    /// Returns the size of one packet of `len` bytes.
    pub(crate) fn packet(len: usize) -> Self {
        Self { packets: 1, bytes: len as u64 }
    }

    /// Returns the size of the packets in a frame of `len` bytes; `stack` is read only for a superframe.
    pub(crate) fn of(len: usize, meta: &Meta, stack: &Stack) -> Self {
        meta.gso.map_or_else(|| Self::packet(len), |gso| Self::superframe(len, &gso, stack))
    }

    /// Returns the size of `packets` packets that share headers of `headers` bytes in a superframe of `len` bytes.
    pub(crate) fn shared(len: usize, headers: usize, packets: u64) -> Self {
        let packets = packets.max(1);
        Self { packets, bytes: len as u64 + (packets - 1) * headers as u64 }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }

    fn superframe(len: usize, gso: &Gso, stack: &Stack) -> Self {
        let last = stack.last().unwrap_or_default();
        let headers = match gso.size {
            // Only the first fragment contains the transport header (rule S30).
            GsoSize::Fragments(_) => usize::from(last.offset),
            GsoSize::Every(_) | GsoSize::Parts | GsoSize::Unknown => last.end(),
        };
        let headers = headers.min(len);
        let payload = len - headers;
        let packets = match gso.size {
            GsoSize::Every(size) => payload.div_ceil(usize::from(size.get())) as u64,
            // The data of each fragment except the last is a multiple of eight bytes (RFC 791 section 3.2).
            GsoSize::Fragments(size) => {
                payload.div_ceil(usize::from(size.get() & !7).max(8)) as u64
            }
            GsoSize::Parts | GsoSize::Unknown => u64::from(gso.segments.max(1)),
        };
        Self::shared(len, headers, packets)
    }
}

/// Checksum state that a port reported for a received frame, named after the kernel's `CHECKSUM_*` states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RxCsum {
    /// The port supplied the one's-complement sum of the whole packet.
    Complete,
    /// The port verified the checksums, or left them partial because packets from a local sender need no verification.
    Unnecessary,
    /// The checksums are not verified.
    None,
}

impl RxCsum {
    /// All states.
    pub const ALL: &'static [Self] = &[Self::Complete, Self::Unnecessary, Self::None];

    pub(crate) fn of(checksum: Checksum) -> Self {
        match checksum {
            Checksum::Complete { .. } => Self::Complete,
            Checksum::Unnecessary { .. } | Checksum::Partial { .. } => Self::Unnecessary,
            Checksum::None => Self::None,
        }
    }
}

/// Innermost transport protocol of a superframe, and the IP version that it runs over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP over IPv4.
    Udp4,
    /// UDP over IPv6.
    Udp6,
}

impl Protocol {
    /// All protocols.
    pub const ALL: &'static [Self] = &[Self::Tcp4, Self::Tcp6, Self::Udp4, Self::Udp6];

    /// Returns the short name used in counters.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp4 => "tcp4",
            Self::Tcp6 => "tcp6",
            Self::Udp4 => "udp4",
            Self::Udp6 => "udp6",
        }
    }

    /// Returns the transport protocol and IP version of a superframe whose innermost header is TCP or UDP.
    pub(crate) fn of(stack: &Stack) -> Self {
        let mut inwards = stack.layers().iter().rev();
        let is_tcp = stack.last().is_some_and(|layer| layer.kind == Kind::Tcp);
        let ip = inwards.find(|layer| layer.kind.is_ip());
        match (is_tcp, ip.is_some_and(|layer| layer.kind == Kind::Ipv6)) {
            (true, false) => Self::Tcp4,
            (true, true) => Self::Tcp6,
            (false, false) => Self::Udp4,
            (false, true) => Self::Udp6,
        }
    }
}
