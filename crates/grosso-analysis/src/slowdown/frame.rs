//! Extracts the TCP frame fields that the tracker needs.

use grosso_wire::tcp::{self, TcpHeader, TcpOption, TcpOptions};

use crate::{
    evidence::{Evidence, Judgment, Segments, Sight, Size},
    headers::u32_at,
};

/// TCP frame: a wire packet, or a superframe with its number of packets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TcpFrame {
    pub(super) time_ns: u64,
    /// Turn in which a frame with a payload was captured (see [`Turns`](super::turns::Turns)).
    pub(super) turn: u32,
    pub(super) sequence: u32,
    /// Acknowledgment number; `None` if the ACK flag is not set.
    pub(super) ack: Option<u32>,
    pub(super) flags: u16,
    pub(super) window: u16,
    pub(super) payload: u32,
    /// Payload bytes in each packet except the last.
    pub(super) segment: u32,
    /// Segment size of a superframe, and the evidence for it.
    pub(super) size: Option<Size>,
    /// Number of packets on the wire.
    pub(super) packets: u32,
    /// Length of the largest packet in bytes, counted from the innermost IP header.
    pub(super) ip_bytes: u32,
    /// IPv4 ID.
    pub(super) identification: Option<u16>,
    /// Value and echo of the timestamp option.
    pub(super) timestamps: Option<(u32, u32)>,
    pub(super) mss: Option<u16>,
    pub(super) window_scale: Option<u8>,
    /// First and second blocks of the SACK option.
    pub(super) blocks: [Option<(u32, u32)>; 2],
    /// Whether a checksum is complete but wrong.
    pub(super) is_bad: bool,
}

impl TcpFrame {
    /// Parses a frame; returns `None` if it is not TCP or its headers are truncated.
    pub(super) fn of(sight: &Sight<'_>, judgment: &Judgment, is_bad: bool) -> Option<Self> {
        let transport = sight.transport.as_ref().filter(|transport| transport.is_tcp())?;
        let start = transport.layer.offset as usize;
        let bytes = sight.packet.data.get(start..transport.layer.end())?;
        let (header, options, _) = TcpHeader::parse(bytes).ok()?;
        let payload = u32::try_from(transport.payload).unwrap_or(u32::MAX);
        let Segments { bytes: segment, packets, size } = judgment.segments(transport.payload);
        let flags = transport.flags(sight.packet.data);
        let mut frame = Self {
            time_ns: sight.packet.timestamp_ns.unwrap_or(0),
            sequence: header.sequence.get(),
            ack: (flags & tcp::ACK != 0).then(|| header.acknowledgment.get()),
            flags,
            window: header.window.get(),
            payload,
            segment,
            packets,
            size,
            ip_bytes: segment.saturating_add(transport.inner_overhead() as u32),
            identification: transport.identification(sight.packet.data),
            is_bad,
            ..Self::default()
        };
        let options = options.as_bytes();
        // In nearly all segments, the timestamp option is the only one and follows two bytes of padding.
        if options.len() == TIMESTAMPS_ALONE_BYTES && options[..4] == TIMESTAMPS_ALONE {
            frame.timestamps = Some((u32_at(options, 4), u32_at(options, 8)));
        } else if !options.is_empty() {
            frame.read(TcpOptions::new(options));
        }
        Some(frame)
    }

    fn read(&mut self, options: TcpOptions<'_>) {
        for option in options.map_while(Result::ok) {
            match option {
                TcpOption::MaximumSegmentSize(mss) => self.mss = Some(mss),
                TcpOption::WindowScale(bits) => self.window_scale = Some(bits.min(SCALE_MAX)),
                TcpOption::Timestamps { value, echo } => self.timestamps = Some((value, echo)),
                TcpOption::Sack(blocks) => {
                    for (place, block) in self.blocks.iter_mut().zip(blocks) {
                        *place = Some((block.left.get(), block.right.get()));
                    }
                }
                _ => {}
            }
        }
    }

    pub(super) const fn has(&self, flags: u16) -> bool {
        self.flags & flags != 0
    }

    /// Returns whether the frame is an acknowledgment without payload.
    pub(super) const fn is_pure_ack(&self) -> bool {
        self.payload == 0 && self.ack.is_some() && !self.has(tcp::SYN | tcp::FIN | tcp::RST)
    }

    /// Returns the number and size of the packets in the frame.
    pub(super) const fn segments(&self) -> Segments {
        Segments { bytes: self.segment, packets: self.packets, size: self.size }
    }

    /// Returns the sequence number that follows the payload.
    pub(super) const fn end(&self) -> u32 {
        self.sequence.wrapping_add(self.payload)
    }

    /// Returns whether the frame may be a single packet from a sender that ignores the MTU in an ICMP message. This is
    /// possible if only that message suggests a superframe and the payload fits the peer's MSS.
    pub(super) fn is_packet_of(&self, mss: u32) -> bool {
        self.size.is_some_and(|size| size.by == Evidence::Icmp) && self.payload <= mss
    }

    /// Treats the frame as a single packet.
    pub(super) const fn make_packet(&mut self) {
        self.ip_bytes += self.payload - self.segment;
        (self.segment, self.packets, self.size) = (self.payload, 1, None);
    }

    /// Returns the number of packets needed for `bytes` bytes of payload.
    pub(super) fn packets_of(&self, bytes: u32) -> u32 {
        bytes.div_ceil(self.segment.max(1))
    }
}

/// Returns whether one sequence number or timestamp precedes another, modulo 2^32.
pub(super) const fn is_before(one: u32, other: u32) -> bool {
    one.wrapping_sub(other).cast_signed() < 0
}

/// First bytes of options that consist only of timestamps: two bytes of padding, then the kind and length of the
/// timestamp option.
const TIMESTAMPS_ALONE: [u8; 4] = [tcp::OPTION_NOP, tcp::OPTION_NOP, tcp::OPTION_TIMESTAMPS, 10];
/// Length in bytes of options that consist only of timestamps.
const TIMESTAMPS_ALONE_BYTES: usize = 12;
/// Maximum window scale (RFC 7323).
const SCALE_MAX: u8 = 14;
