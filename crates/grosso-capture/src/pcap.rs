//! Classic pcap format as a state machine over bytes, without I/O and without copying.
//!
//! A file consists of a 24-byte header and records, each of which has a 16-byte header and a packet. The magic number
//! determines the byte order and the time unit. See draft-ietf-opsawg-pcap.

use super::error::{CaptureError, Damage};
use super::format::{Interface, RECORD_BYTES_MAX, Resolution, SNAPLEN_DEFAULT};
use super::layout::{Layout, Need, PacketLayout, Part, Span, Step};
use super::magic::Magic;
use super::nflog;
use super::order::ByteOrder;

/// Length of the file header in bytes.
pub(crate) const FILE_HEADER_BYTES: usize = 24;

/// Length of a record header in bytes.
pub(crate) const RECORD_HEADER_BYTES: usize = 16;
/// Length in bytes of the timestamp at the start of a record header.
pub(crate) const RECORD_TIME_BYTES: usize = 8;

/// Header of a pcap file. It keeps the original bytes, so that a copy is identical, except for the version, which
/// becomes [`VERSION`], the length of the frame check sequence, and the link type of NFLOG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileHeader {
    pub(crate) order: ByteOrder,
    pub(crate) interface: Interface,
    pub(crate) raw: [u8; FILE_HEADER_BYTES],
    lengths: Lengths,
}

/// Order of the two length fields in a record header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lengths {
    /// The captured length comes first.
    CapturedFirst,
    /// The original length comes first, as in versions before 2.3.
    OriginalFirst,
    /// The order is unknown, because programs that wrote version 2.3 disagreed. The captured length is the smaller of
    /// the two.
    CapturedShorter,
}

impl Lengths {
    /// Returns the order in files of this version, or `None` if the version is unknown.
    fn of_version(version: (u16, u16)) -> Option<Self> {
        match version {
            VERSION => Some(Self::CapturedFirst),
            (2, 3) => Some(Self::CapturedShorter),
            (2, 0..=2) => Some(Self::OriginalFirst),
            _ => None,
        }
    }

    /// Returns the captured length and the original length, given the first and the second length field.
    #[inline]
    fn sort(self, first: u32, second: u32) -> (u32, u32) {
        match self {
            Self::OriginalFirst => (second, first),
            Self::CapturedShorter if first > second => (second, first),
            _ => (first, second),
        }
    }
}

impl FileHeader {
    pub(crate) fn parse(mut raw: [u8; FILE_HEADER_BYTES]) -> Result<Self, CaptureError> {
        let Magic::Pcap { order, resolution } = Magic::detect(&raw)? else {
            return Err(CaptureError::not_a_capture(&raw));
        };
        let (major, minor) = (order.u16_at(&raw, 4), order.u16_at(&raw, 6));
        // Version 2.4 dates from 1998, but older captures are still around.
        let Some(lengths) = Lengths::of_version((major, minor)) else {
            let what = Damage::Version { major, minor };
            return Err(CaptureError::Damaged { what, offset: 0 });
        };
        raw[6..8].copy_from_slice(&order.u16_bytes(VERSION.1));
        let network = order.u32_at(&raw, 20);
        // If its presence bit is set, the upper half contains the length of the frame check sequence in units of 16
        // bits (draft-ietf-opsawg-pcap section 4).
        let fcs_bytes = (network & FCS_PRESENT != 0).then_some((network >> 28) as u8 * 2);
        // Packets are copied without their frame check sequences.
        raw[20..24].copy_from_slice(&order.u32_bytes(network & !(FCS_PRESENT | FCS_LENGTH)));
        let (link_type, has_nflog) = match network & LINK_TYPE_MASK {
            nflog::LINK_TYPE => (nflog::WITHOUT.into(), true),
            link_type => (link_type, false),
        };
        if has_nflog {
            raw[20..24].copy_from_slice(&order.u32_bytes(link_type));
        }
        let interface = Interface {
            link_type,
            snaplen: order.u32_at(&raw, 16),
            resolution,
            offset_seconds: 0,
            fcs_bytes,
            has_nflog,
        };
        Ok(Self { order, interface, raw, lengths })
    }

    /// Creates a header for `interface`, with nanosecond timestamps if its unit is finer than microseconds.
    pub(crate) fn new(interface: &Interface, order: ByteOrder) -> Self {
        let nanoseconds = interface.resolution.is_finer_than_microseconds();
        let (magic, resolution) = if nanoseconds {
            (0xa1b2_3c4d_u32, Resolution::NANOSECONDS)
        } else {
            (0xa1b2_c3d4, Resolution::MICROSECONDS)
        };
        let snaplen = if interface.snaplen == 0 { SNAPLEN_DEFAULT } else { interface.snaplen };
        let mut raw = [0; FILE_HEADER_BYTES];
        raw[0..4].copy_from_slice(&order.u32_bytes(magic));
        raw[4..6].copy_from_slice(&order.u16_bytes(VERSION.0));
        raw[6..8].copy_from_slice(&order.u16_bytes(VERSION.1));
        raw[16..20].copy_from_slice(&order.u32_bytes(snaplen));
        raw[20..24].copy_from_slice(&order.u32_bytes(interface.link_type & LINK_TYPE_MASK));
        let interface = Interface { snaplen, resolution, offset_seconds: 0, ..*interface };
        Self { order, interface, raw, lengths: Lengths::CapturedFirst }
    }

    /// Raises the snapshot length to at least `bytes`. A snapshot length of 0 means no limit and is not changed.
    pub(crate) fn with_snaplen_min(mut self, bytes: u32) -> Self {
        if (1..bytes).contains(&self.interface.snaplen) {
            self.interface.snaplen = bytes;
            self.raw[16..20].copy_from_slice(&self.order.u32_bytes(bytes));
        }
        self
    }

    /// Sets the link type.
    pub(crate) fn with_link_type(mut self, link_type: u16) -> Self {
        self.interface.link_type = link_type.into();
        let others = self.order.u32_at(&self.raw, 20) & !LINK_TYPE_MASK;
        self.raw[20..24].copy_from_slice(&self.order.u32_bytes(others | u32::from(link_type)));
        self
    }

    /// Returns the header of one record.
    pub(crate) fn record(
        &self,
        seconds: u32,
        fraction: u32,
        captured: u32,
        original: u32,
    ) -> [u8; RECORD_HEADER_BYTES] {
        let mut header = [0; RECORD_HEADER_BYTES];
        for (place, value) in
            header.chunks_exact_mut(4).zip([seconds, fraction, captured, original])
        {
            place.copy_from_slice(&self.order.u32_bytes(value));
        }
        header
    }

    /// Returns the unit of the timestamps' sub-second part in nanoseconds.
    pub(crate) fn nanoseconds_per_fraction(&self) -> u32 {
        if self.interface.resolution == Resolution::NANOSECONDS { 1 } else { 1000 }
    }
}

/// Encodes the length fields of a record header in [`VERSION`].
pub(crate) fn lengths(order: ByteOrder, captured: u32, original: u32) -> [u8; 8] {
    let mut lengths = [0; 8];
    lengths[..4].copy_from_slice(&order.u32_bytes(captured));
    lengths[4..].copy_from_slice(&order.u32_bytes(original));
    lengths
}

/// Decodes the record at the start of `bytes`.
#[inline]
pub(crate) fn step(header: &FileHeader, bytes: &[u8]) -> Result<Step, Damage> {
    let Some(record) = bytes.first_chunk::<RECORD_HEADER_BYTES>() else {
        let part = Part::PacketHeader;
        return Ok(Step::Need(Need { bytes: RECORD_HEADER_BYTES, before: 0, part }));
    };
    let order = header.order;
    let (captured, original_len) =
        header.lengths.sort(order.u32_at(record, 8), order.u32_at(record, 12));
    if captured as usize > RECORD_BYTES_MAX - RECORD_HEADER_BYTES {
        return Err(Damage::RecordTooLong { bytes: u64::from(captured) });
    }
    let length = RECORD_HEADER_BYTES + captured as usize;
    if bytes.len() < length {
        let part = Part::Packet;
        return Ok(Step::Need(Need { bytes: length, before: RECORD_HEADER_BYTES, part }));
    }
    let seconds = u64::from(order.u32_at(record, 0));
    let fraction = u64::from(order.u32_at(record, 4));
    // Fractions of a second or more carry over to the seconds; libpcap shows them unchanged.
    let timestamp_ns =
        seconds * 1_000_000_000 + fraction * u64::from(header.nanoseconds_per_fraction());
    let layout = PacketLayout {
        interface: 0,
        timestamp_ns: Some(timestamp_ns),
        original_len,
        data: Span { start: RECORD_HEADER_BYTES, end: length },
        options: Span { start: length, end: length },
    };
    Ok(Step::Record { bytes: length, layout: Layout::Packet(layout) })
}

/// Current version, used for all written files.
const VERSION: (u16, u16) = (2, 4);
/// Bits of the network field that contain the link type.
const LINK_TYPE_MASK: u32 = 0xffff;
/// Bit of the network field that says that the length of the frame check sequence is present.
const FCS_PRESENT: u32 = 0x0400_0000;
const FCS_LENGTH: u32 = 0xf000_0000;
