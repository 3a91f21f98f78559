//! pcapng format as a state machine over bytes, without I/O and without copying.
//!
//! A file is a list of blocks, each of which consists of a type, a length, a body, and the length again. A section
//! header block sets the byte order and discards the interfaces of the previous section. Blocks without a packet are
//! returned unchanged. See draft-ietf-opsawg-pcapng.

use super::error::Damage;
use super::format::{INTERFACES_MAX, Interface, RECORD_BYTES_MAX, Resolution};
use super::layout::{Layout, Need, PacketLayout, Part, Span, Step};
use super::nflog;
use super::options::{Options, code, padding, push_end, push_option};
use super::order::ByteOrder;

/// Block type of a section header. It is a palindrome, so it is the same in both byte orders.
pub(crate) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
/// Block type of an interface description.
pub(crate) const INTERFACE_DESCRIPTION: u32 = 1;
/// Block type of packets in the first drafts of the format.
pub(crate) const OBSOLETE_PACKET: u32 = 2;
/// Block type of a packet on interface 0 without a timestamp or options.
pub(crate) const SIMPLE_PACKET: u32 = 3;
/// Block type of name resolution records.
pub(crate) const NAME_RESOLUTION: u32 = 4;
/// Block type of keys for encrypted packets.
pub(crate) const DECRYPTION_SECRETS: u32 = 10;
/// Block type of the counters of an interface.
pub(crate) const INTERFACE_STATISTICS: u32 = 5;
/// Block type of a packet.
pub(crate) const ENHANCED_PACKET: u32 = 6;
/// Block type of a custom block that must not be copied by tools that change the file.
pub(crate) const CUSTOM_BLOCK_NO_COPY: u32 = 0x4000_0bad;

/// Length of a section header up to its options, in bytes.
pub(crate) const SECTION_HEADER_BYTES: usize = 24;
/// Length of an enhanced packet block up to its packet, in bytes.
pub(crate) const ENHANCED_PACKET_BYTES: usize = 28;
/// Length of the length field at the end of every block, in bytes.
pub(crate) const TRAILER_BYTES: usize = 4;

/// Decoder for pcapng blocks, with the state that it keeps between blocks.
#[derive(Clone, Debug)]
pub(crate) struct PcapngDecoder {
    pub(crate) order: ByteOrder,
    pub(crate) interfaces: Vec<Interface>,
}

impl PcapngDecoder {
    pub(crate) fn new() -> Self {
        Self { order: ByteOrder::NATIVE, interfaces: Vec::new() }
    }

    /// Decodes the block at the start of `bytes`. The state changes only once the block is complete.
    #[inline]
    pub(crate) fn step(&mut self, bytes: &[u8]) -> Result<Step, Damage> {
        let Some(head) = bytes.first_chunk::<8>() else { return Ok(need(8, Part::BlockHeader)) };
        let kind = self.order.u32_at(head, 0);
        let order = if kind == SECTION_HEADER {
            let Some(head) = bytes.first_chunk::<12>() else {
                return Ok(need(12, Part::BlockHeader));
            };
            section_order(head)?
        } else {
            self.order
        };
        let leading = order.u32_at(head, 4);
        let length = leading as usize;
        check_length(kind, leading)?;
        if bytes.len() < length {
            let is_packet = matches!(kind, ENHANCED_PACKET | SIMPLE_PACKET | OBSOLETE_PACKET);
            return Ok(need(length, if is_packet { Part::Packet } else { Part::Block(kind) }));
        }
        let block = &bytes[..length];
        if let Some(trailer) = block.last_chunk::<TRAILER_BYTES>() {
            let trailing = order.u32_from(*trailer);
            if trailing != leading {
                return Err(Damage::BlockLengthsDiffer { leading, trailing });
            }
        }
        let layout = self.layout(kind, order, block)?;
        Ok(Step::Record { bytes: length, layout })
    }

    #[inline]
    fn layout(&mut self, kind: u32, order: ByteOrder, block: &[u8]) -> Result<Layout, Damage> {
        match kind {
            ENHANCED_PACKET => self.enhanced_packet(block).map(Layout::Packet),
            SIMPLE_PACKET => self.simple_packet(block).map(Layout::Packet),
            OBSOLETE_PACKET => self.obsolete_packet(block).map(Layout::Packet),
            SECTION_HEADER => {
                check_version(order, block)?;
                self.order = order;
                self.interfaces.clear();
                Ok(Layout::Block { kind, interface: None })
            }
            INTERFACE_DESCRIPTION => {
                if self.interfaces.len() >= INTERFACES_MAX {
                    return Err(Damage::TooManyInterfaces);
                }
                let interface = parse_interface(order, block)?;
                self.interfaces.push(interface);
                Ok(Layout::Block { kind, interface: Some(interface) })
            }
            _ => Ok(Layout::Block { kind, interface: None }),
        }
    }

    #[inline]
    fn enhanced_packet(&self, block: &[u8]) -> Result<PacketLayout, Damage> {
        let header = fixed::<ENHANCED_PACKET_BYTES>(ENHANCED_PACKET, block)?;
        let interface = self.order.u32_at(header, 8);
        let captured = self.order.u32_at(header, 20);
        let (data, options) = packet_spans(ENHANCED_PACKET_BYTES, captured, block)?;
        let ticks = self.ticks(header);
        Ok(PacketLayout {
            interface,
            timestamp_ns: Some(self.interface(interface)?.nanoseconds(ticks)),
            original_len: self.order.u32_at(header, 24),
            data,
            options,
        })
    }

    fn obsolete_packet(&self, block: &[u8]) -> Result<PacketLayout, Damage> {
        let header = fixed::<ENHANCED_PACKET_BYTES>(OBSOLETE_PACKET, block)?;
        // Like an enhanced packet block, but with a 16-bit interface number followed by a drop count.
        let interface = u32::from(self.order.u16_at(header, 8));
        let captured = self.order.u32_at(header, 20);
        let (data, options) = packet_spans(ENHANCED_PACKET_BYTES, captured, block)?;
        let ticks = self.ticks(header);
        Ok(PacketLayout {
            interface,
            timestamp_ns: Some(self.interface(interface)?.nanoseconds(ticks)),
            original_len: self.order.u32_at(header, 24),
            data,
            options,
        })
    }

    fn simple_packet(&self, block: &[u8]) -> Result<PacketLayout, Damage> {
        let header = fixed::<SIMPLE_PACKET_BYTES>(SIMPLE_PACKET, block)?;
        let original_len = self.order.u32_at(header, 8);
        let snaplen = match self.interface(0)?.snaplen {
            0 => u32::MAX,
            snaplen => snaplen,
        };
        // The block has no captured length; the draft derives it from the snapshot length.
        let captured = original_len.min(snaplen);
        let (data, _) = packet_spans(SIMPLE_PACKET_BYTES, captured, block)?;
        let options = Span { start: data.end, end: data.end };
        Ok(PacketLayout { interface: 0, timestamp_ns: None, original_len, data, options })
    }

    fn interface(&self, interface: u32) -> Result<&Interface, Damage> {
        let declared = self.interfaces.len();
        self.interfaces.get(interface as usize).ok_or_else(|| Damage::UnknownInterface {
            interface,
            declared: u32::try_from(declared).unwrap_or(u32::MAX),
        })
    }

    #[inline]
    fn ticks(&self, header: &[u8; ENHANCED_PACKET_BYTES]) -> u64 {
        let high = self.order.u32_at(header, 12);
        u64::from(high) << 32 | u64::from(self.order.u32_at(header, 16))
    }
}

/// Appends a block with damaged options, but only the options before the damage. The bytes after it cannot be parsed.
pub(crate) fn push_sound(out: &mut Vec<u8>, block: &[u8], options: &Options<'_>) {
    let (start, order) = (out.len(), options.order());
    let head = block.len().saturating_sub(TRAILER_BYTES + options.as_bytes().len());
    out.extend_from_slice(&block[..head]);
    for option in options.iter().flatten() {
        push_option(out, order, option.code, option.value);
    }
    push_end(out, order);
    let length = order.u32_bytes(block_length(out.len() - start + TRAILER_BYTES));
    out[start + 4..start + 8].copy_from_slice(&length);
    out.extend_from_slice(&length);
}

/// Returns the options of a block without a packet. Blocks of unknown layout have none.
pub(crate) fn block_options(kind: u32, order: ByteOrder, block: &[u8]) -> Options<'_> {
    let end = block.len().saturating_sub(TRAILER_BYTES);
    let start = match kind {
        SECTION_HEADER => SECTION_HEADER_BYTES,
        INTERFACE_DESCRIPTION => INTERFACE_BYTES,
        INTERFACE_STATISTICS => STATISTICS_BYTES,
        NAME_RESOLUTION => names_end(order, block).unwrap_or(end),
        DECRYPTION_SECRETS => secrets_end(order, block).unwrap_or(end),
        _ => end,
    };
    Options::new(block.get(start..end).unwrap_or(&[]), order)
}

/// Returns the end of a name resolution block's records, in bytes from the start of the block.
fn names_end(order: ByteOrder, block: &[u8]) -> Option<usize> {
    let mut at = NAMES_BYTES;
    loop {
        let header = block.get(at..)?.first_chunk::<4>()?;
        let length = usize::from(order.u16_at(header, 2));
        at += 4 + length + padding(length);
        if order.u16_at(header, 0) == 0 {
            return Some(at);
        }
    }
}

/// Returns the end of a decryption secrets block's secrets, in bytes from the start of the block.
fn secrets_end(order: ByteOrder, block: &[u8]) -> Option<usize> {
    let length = order.u32_from(*block.get(12..)?.first_chunk::<4>()?) as usize;
    SECRETS_BYTES.checked_add(length)?.checked_add(padding(length))
}

/// Appends a section header of unknown section length, with these encoded options.
pub(crate) fn push_section(
    out: &mut Vec<u8>,
    order: ByteOrder,
    version: (u16, u16),
    options: &[u8],
) {
    let length = block_length(SECTION_HEADER_BYTES + options.len() + TRAILER_BYTES);
    out.extend_from_slice(&order.u32_bytes(SECTION_HEADER));
    out.extend_from_slice(&order.u32_bytes(length));
    out.extend_from_slice(&order.u32_bytes(BYTE_ORDER_MAGIC));
    out.extend_from_slice(&order.u16_bytes(version.0));
    out.extend_from_slice(&order.u16_bytes(version.1));
    out.extend_from_slice(&order.u64_bytes(u64::MAX));
    out.extend_from_slice(options);
    out.extend_from_slice(&order.u32_bytes(length));
}

/// Appends an interface description.
pub(crate) fn push_interface(
    out: &mut Vec<u8>,
    order: ByteOrder,
    interface: &Interface,
    more: &[u8],
) {
    let mut options = Vec::new();
    let resolution = interface.resolution.to_byte();
    push_option(&mut options, order, code::INTERFACE_RESOLUTION, &[resolution]);
    if interface.offset_seconds != 0 {
        let offset = order.u64_bytes(interface.offset_seconds.cast_unsigned());
        push_option(&mut options, order, code::INTERFACE_OFFSET, &offset);
    }
    options.extend_from_slice(more);
    push_end(&mut options, order);
    let length = block_length(INTERFACE_BYTES + options.len() + TRAILER_BYTES);
    // The writer has already refused link types that need more than 16 bits.
    let link_type = u16::try_from(interface.link_type).unwrap_or(u16::MAX);
    out.extend_from_slice(&order.u32_bytes(INTERFACE_DESCRIPTION));
    out.extend_from_slice(&order.u32_bytes(length));
    out.extend_from_slice(&order.u16_bytes(link_type));
    out.extend_from_slice(&[0; 2]);
    out.extend_from_slice(&order.u32_bytes(interface.snaplen));
    out.extend_from_slice(&options);
    out.extend_from_slice(&order.u32_bytes(length));
}

/// Sets the link type in an interface description.
pub(crate) fn put_link_type(raw: &mut [u8], order: ByteOrder, link_type: u16) {
    if let Some(place) = raw.get_mut(8..10) {
        place.copy_from_slice(&order.u16_bytes(link_type));
    }
}

/// Sets the length of the frame check sequence in an interface description to 0, because packets are copied without it.
pub(crate) fn clear_fcs(raw: &mut [u8], order: ByteOrder) {
    let mut at = INTERFACE_BYTES;
    while let Some(head) = raw.get(at..).and_then(|rest| rest.first_chunk::<5>()) {
        let (code, length) = (order.u16_at(head, 0), usize::from(order.u16_at(head, 2)));
        match code {
            code::INTERFACE_FCS_LENGTH if length > 0 => return raw[at + 4] = 0,
            0 => return,
            _ => at += 4 + length.next_multiple_of(4),
        }
    }
}

/// Fields of an enhanced packet block that precede the packet.
pub(crate) struct EnhancedPacket {
    pub(crate) interface: u32,
    pub(crate) ticks: u64,
    pub(crate) captured: u32,
    pub(crate) original: u32,
    pub(crate) length: u32,
}

impl EnhancedPacket {
    pub(crate) fn emit(&self, order: ByteOrder) -> [u8; ENHANCED_PACKET_BYTES] {
        let fields = [
            ENHANCED_PACKET,
            self.length,
            self.interface,
            (self.ticks >> 32) as u32,
            self.ticks as u32,
            self.captured,
            self.original,
        ];
        let mut header = [0; ENHANCED_PACKET_BYTES];
        for (place, value) in header.chunks_exact_mut(4).zip(fields) {
            place.copy_from_slice(&order.u32_bytes(value));
        }
        header
    }
}

/// Returns the byte order that a section header declares.
fn section_order(head: &[u8; 12]) -> Result<ByteOrder, Damage> {
    [ByteOrder::Little, ByteOrder::Big]
        .into_iter()
        .find(|order| order.u32_at(head, 8) == BYTE_ORDER_MAGIC)
        .ok_or_else(|| Damage::SectionMagic { magic: ByteOrder::Big.u32_at(head, 8) })
}

#[inline]
fn check_length(kind: u32, bytes: u32) -> Result<(), Damage> {
    if (bytes as usize) < EMPTY_BLOCK_BYTES {
        return Err(Damage::BlockTooShort { kind, bytes });
    }
    if bytes as usize > RECORD_BYTES_MAX {
        return Err(Damage::RecordTooLong { bytes: u64::from(bytes) });
    }
    if !bytes.is_multiple_of(4) {
        return Err(Damage::BlockUnaligned { bytes });
    }
    Ok(())
}

/// Checks the version. For a while, programs wrote minor version 2, which has the same format as version 0 (draft
/// section 4.1).
fn check_version(order: ByteOrder, block: &[u8]) -> Result<(), Damage> {
    let header = fixed::<SECTION_HEADER_BYTES>(SECTION_HEADER, block)?;
    match (order.u16_at(header, 12), order.u16_at(header, 14)) {
        (1, 0 | 2) => Ok(()),
        (major, minor) => Err(Damage::Version { major, minor }),
    }
}

fn parse_interface(order: ByteOrder, block: &[u8]) -> Result<Interface, Damage> {
    let header = fixed::<INTERFACE_BYTES>(INTERFACE_DESCRIPTION, block)?;
    let options = block_options(INTERFACE_DESCRIPTION, order, block);
    let single = |code| options.find(code).and_then(|value| value.first().copied());
    let offset = options.find(code::INTERFACE_OFFSET).and_then(|value| value.first_chunk::<8>());
    let (link_type, has_nflog) = match order.u16_at(header, 8).into() {
        nflog::LINK_TYPE => (nflog::WITHOUT.into(), true),
        link_type => (link_type, false),
    };
    Ok(Interface {
        link_type,
        snaplen: order.u32_at(header, 12),
        resolution: single(code::INTERFACE_RESOLUTION)
            .map_or(Resolution::MICROSECONDS, Resolution::from_byte),
        offset_seconds: offset.map_or(0, |bytes| order.u64_from(*bytes).cast_signed()),
        fcs_bytes: single(code::INTERFACE_FCS_LENGTH),
        has_nflog,
    })
}

/// Returns the fixed fields of a block, if it has room for them and the trailer.
#[inline]
fn fixed<const N: usize>(kind: u32, block: &[u8]) -> Result<&[u8; N], Damage> {
    let body = block.split_last_chunk::<TRAILER_BYTES>().map_or(&[][..], |(body, _)| body);
    let bytes = u32::try_from(block.len()).unwrap_or(u32::MAX);
    body.first_chunk::<N>().ok_or(Damage::BlockTooShort { kind, bytes })
}

/// Returns the ranges of the packet and the options in a block whose fixed fields end at `start`.
#[inline]
fn packet_spans(start: usize, captured: u32, block: &[u8]) -> Result<(Span, Span), Damage> {
    let end = block.len() - TRAILER_BYTES;
    let room = end - start;
    if captured as usize > room {
        let room = u32::try_from(room).unwrap_or(u32::MAX);
        return Err(Damage::PacketPastBlock { captured, room });
    }
    let data_end = start + captured as usize;
    // The block length is a multiple of four, so the padding fits if the packet does.
    let options_start = (data_end + padding(data_end)).min(end);
    Ok((Span { start, end: data_end }, Span { start: options_start, end }))
}

const fn need(bytes: usize, part: Part) -> Step {
    Step::Need(Need { bytes, before: 0, part })
}

/// Converts a block length, which the writer has checked to be far below 4 GiB.
fn block_length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const EMPTY_BLOCK_BYTES: usize = 12;
const INTERFACE_BYTES: usize = 16;
const SIMPLE_PACKET_BYTES: usize = 12;
const STATISTICS_BYTES: usize = 20;
const NAMES_BYTES: usize = 8;
const SECRETS_BYTES: usize = 16;
