//! What a direction of a data path counts, and what a frame is on the wire.

use grosso::{
    Meta,
    acknowledge::Unexpanded,
    checksum::Checksum,
    meta::{Cut, Gso},
};
use grosso_wire::{Kind, Stack};

/// What one direction of a data path did.
///
/// Frames are what ports hand over; packets are what the wire has of them: a superframe is one frame, and as many
/// packets as it stands for, each with its headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DirectionStats {
    /// Frames received.
    pub rx_frames: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// What was received, as the wire has it.
    pub rx_wire: WireSize,
    /// Frames received by what their port said about their checksums, in the order of [`Said::ALL`].
    pub rx_checksums: [u64; Said::ALL.len()],
    /// Frames transmitted.
    pub tx_frames: u64,
    /// Bytes transmitted.
    pub tx_bytes: u64,
    /// What was transmitted, as the wire has it.
    pub tx_wire: WireSize,
    /// Frames to transmit whose checksum was still partial: here or in the port somebody has to sum them.
    pub tx_partial: u64,
    /// Frames to transmit whose checksums were complete.
    pub tx_complete: u64,
    /// Superframes made, by the protocols in the order of [`Protocol::ALL`].
    pub joined: [Superframes; Protocol::ALL.len()],
    /// Superframes cut because the port did not take them.
    pub cut: u64,
    /// Bytes of those superframes.
    pub cut_bytes: u64,
    /// The packets that they became.
    pub cut_wire: WireSize,
    /// Partial checksums completed because the port did not take them.
    pub completed: u64,
    /// Superframes that could not be cut, and were transmitted as they are.
    pub uncut: u64,
    /// Acknowledgments in the place of each of which several were transmitted.
    pub acknowledgments_expanded: u64,
    /// How many those were, the last of each its own.
    pub acknowledgments_expanded_into: u64,
    /// Acknowledgments of trains that stayed one, by reason.
    pub acknowledgments_unexpanded: [u64; Unexpanded::COUNT],
    /// Times that the port had no room.
    pub no_room: u64,
}

/// Superframes, and what the wire has of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Superframes {
    /// How many.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What went into them, or what becomes of them.
    pub wire: WireSize,
}

impl Superframes {
    pub(crate) fn count(&mut self, len: usize, wire: WireSize) {
        self.frames += 1;
        self.bytes += len as u64;
        self.wire.add(wire);
    }
}

/// Packets as the wire has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireSize {
    /// How many.
    pub packets: u64,
    /// Their bytes, headers of each included.
    pub bytes: u64,
}

impl WireSize {
    /// One packet of so many bytes.
    pub(crate) fn packet(len: usize) -> Self {
        Self { packets: 1, bytes: len as u64 }
    }

    /// A frame of so many bytes, whose headers are known when it is a superframe.
    pub(crate) fn of(len: usize, meta: &Meta, stack: &Stack) -> Self {
        meta.gso.map_or_else(|| Self::packet(len), |gso| Self::superframe(len, &gso, stack))
    }

    /// So many packets that share headers of `headers` bytes in a superframe of `len` bytes.
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
        let headers = match gso.cut {
            // The transport header is in the first fragment alone (rule S30).
            Cut::Fragments(_) => usize::from(last.offset),
            Cut::Every(_) | Cut::Parts => last.end(),
        };
        let headers = headers.min(len);
        let payload = len - headers;
        let packets = match gso.cut {
            Cut::Every(size) => payload.div_ceil(usize::from(size.get())) as u64,
            // The data of all fragments but the last is a multiple of eight bytes (RFC 791 section 3.2).
            Cut::Fragments(size) => payload.div_ceil(usize::from(size.get() & !7).max(8)) as u64,
            Cut::Parts => u64::from(gso.segments),
        };
        Self::shared(len, headers, packets)
    }
}

/// What a port said about the checksums of a received frame, in the words of the kernel's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// It gave the sum of the whole packet.
    Complete,
    /// It verified them, or the sender is so near that there is nothing to verify: a partial checksum.
    Unnecessary,
    /// Nothing.
    None,
}

impl Said {
    /// Everything that can be said.
    pub const ALL: &'static [Self] = &[Self::Complete, Self::Unnecessary, Self::None];

    pub(crate) fn of(checksum: Checksum) -> Self {
        match checksum {
            Checksum::Complete { .. } => Self::Complete,
            Checksum::Unnecessary { .. } | Checksum::Partial { .. } => Self::Unnecessary,
            Checksum::None => Self::None,
        }
    }
}

/// The innermost protocols of a superframe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// TCP in IPv4.
    Tcp4,
    /// TCP in IPv6.
    Tcp6,
    /// UDP in IPv4.
    Udp4,
    /// UDP in IPv6.
    Udp6,
}

impl Protocol {
    /// All of them.
    pub const ALL: &'static [Self] = &[Self::Tcp4, Self::Tcp6, Self::Udp4, Self::Udp6];

    /// The short name under which they are counted.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp4 => "tcp4",
            Self::Tcp6 => "tcp6",
            Self::Udp4 => "udp4",
            Self::Udp6 => "udp6",
        }
    }

    /// Those of a superframe whose innermost header is TCP or UDP, as that of each is.
    pub(crate) fn of(stack: &Stack) -> Self {
        let mut inwards = stack.layers().iter().rev();
        let is_tcp = stack.last().is_some_and(|layer| layer.kind == Kind::Tcp);
        let ip = inwards.find(|layer| matches!(layer.kind, Kind::Ipv4 | Kind::Ipv6));
        match (is_tcp, ip.is_some_and(|layer| layer.kind == Kind::Ipv6)) {
            (true, false) => Self::Tcp4,
            (true, true) => Self::Tcp6,
            (false, false) => Self::Udp4,
            (false, true) => Self::Udp6,
        }
    }
}
