//! Headers that every fragment repeats: all headers up to the IP header, and the extension headers before the fragment
//! header.

use grosso_checksum::Sum;
use grosso_wire::{Kind, Layer, Stack, Stop, ipv4, ipv6, ipv6_fragment, pppoe};

use super::refusal::NoFragments;
use crate::{
    bytes::{put_u16, put_u32, u16_at},
    first_fragment::{TCP_FLAGS_END, first_len_min},
    template::HEADER_BYTES_MAX,
};

/// Repeated headers, followed by a fragment header in IPv6.
#[derive(Clone, Debug)]
pub(super) struct FragmentHeader {
    bytes: [u8; HEADER_BYTES_MAX],
    len: usize,
    ip: Layer,
    /// Offset of a PPPoE header before the IP header. It has its own length field (rule G5a).
    pppoe: Option<usize>,
    /// Offset of the packet's data, in bytes from the start of the frame.
    pub(super) data_start: usize,
    /// Offset of the data in the whole datagram. It is greater than 0 if the packet itself is a fragment other than the
    /// first.
    offset: usize,
    /// Whether the packet itself is a fragment that is followed by more.
    more: bool,
}

impl FragmentHeader {
    /// Returns the headers that fragments repeat, for the outermost IP packet in the frame that starts with `head`.
    pub(super) fn new(
        head: &[u8],
        stack: &Stack,
        identification: u32,
    ) -> Result<Self, NoFragments> {
        let mut layers = stack.layers().iter();
        let ip = layers.find(|layer| layer.kind.is_ip());
        let is_cut = stack.stop == Stop::Truncated;
        let ip = ip.ok_or(if is_cut { NoFragments::HeadersSplit } else { NoFragments::NotIp })?;
        // All headers of an IPv6 packet must be present, because its first fragment must contain them (RFC 7112).
        if ip.kind == Kind::Ipv6 && is_cut {
            return Err(NoFragments::HeadersSplit);
        }
        let extensions = layers.as_slice();
        let part = match ip.kind {
            Kind::Ipv6 => unfragmentable(head, *ip, extensions)?,
            _ => Unfragmentable { end: ip.end(), next_header: 0 },
        };
        let room = if ip.kind == Kind::Ipv6 { ipv6_fragment::HEADER_LEN } else { 0 };
        if part.end + room > HEADER_BYTES_MAX {
            return Err(NoFragments::HeaderTooLong);
        }
        let mut bytes = [0; HEADER_BYTES_MAX];
        bytes[..part.end].copy_from_slice(head.get(..part.end).ok_or(NoFragments::HeadersSplit)?);
        let word = u16_at(&bytes, usize::from(ip.offset) + ipv4::field::FRAGMENT.start);
        let is_v4 = ip.kind == Kind::Ipv4;
        let mut header = Self {
            bytes,
            len: part.end,
            ip: *ip,
            pppoe: stack
                .layers()
                .iter()
                .find(|l| l.kind == Kind::Pppoe && l.offset < ip.offset)
                .map(|layer| usize::from(layer.offset)),
            data_start: part.end,
            offset: if is_v4 { usize::from(word & ipv4::OFFSET_MASK) * 8 } else { 0 },
            more: is_v4 && word & ipv4::MORE_FRAGMENTS != 0,
        };
        if !is_v4 {
            header.append_fragment_header(part.next_header, identification);
        }
        Ok(header)
    }

    /// Returns the length in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the length in bytes from the IP header on, which counts towards the MTU.
    pub(super) fn ip_header_len(&self) -> usize {
        self.len - usize::from(self.ip.offset)
    }

    /// Returns the length of the packet in bytes, as declared by its IP header and counted from the start of that
    /// header.
    pub(super) fn whole_len(&self) -> usize {
        let start = usize::from(self.ip.offset);
        match self.ip.kind {
            Kind::Ipv4 => u16_at(&self.bytes, start + ipv4::field::TOTAL_LENGTH.start).into(),
            _ => {
                let at = start + ipv6::field::PAYLOAD_LENGTH.start;
                ipv6::HEADER_LEN + usize::from(u16_at(&self.bytes, at))
            }
        }
    }

    /// Returns the length of the packet's data in bytes. Fails if the frame of `frame_len` bytes is shorter than the IP
    /// header declares.
    pub(super) fn data_len(&self, frame_len: usize) -> Result<usize, NoFragments> {
        let start = usize::from(self.ip.offset);
        let says_nothing = match self.ip.kind {
            Kind::Ipv4 => self.whole_len() == 0,
            _ => self.whole_len() == ipv6::HEADER_LEN && frame_len > start + ipv6::HEADER_LEN,
        };
        if says_nothing {
            return Err(NoFragments::TooLong);
        }
        let end = start + self.whole_len();
        // Bytes beyond the PPPoE length are padding.
        let frame_end = self.pppoe.map_or(frame_len, |start| frame_len.min(self.pppoe_end(start)));
        let data_len = end.checked_sub(self.data_start).filter(|_| end <= frame_end);
        let data_len = data_len.ok_or(NoFragments::BytesMissing)?;
        // The IPv6 length does not include the fixed header.
        let counted = if self.ip.kind == Kind::Ipv4 { usize::from(self.ip.len) } else { 0 };
        let is_too_long = counted + self.offset + data_len > usize::from(u16::MAX);
        if is_too_long { Err(NoFragments::TooLong) } else { Ok(data_len) }
    }

    /// Returns the end of the packet according to the PPPoE header at `start`.
    fn pppoe_end(&self, start: usize) -> usize {
        let counted = u16_at(&self.bytes, start + pppoe::field::LENGTH.start);
        start + pppoe::field::PROTOCOL.start + usize::from(counted)
    }

    /// Returns the fragment size that is always allowed. Every IPv6 link carries fragments of this size, so they may be
    /// used even if all original fragments were smaller (rule S62).
    pub(super) fn largest_min(&self) -> u16 {
        if self.ip.kind == Kind::Ipv4 { 0 } else { ipv6::MTU_MIN }
    }

    /// Returns whether DF is set.
    pub(super) fn forbids_fragments(&self) -> bool {
        let at = usize::from(self.ip.offset) + ipv4::field::FRAGMENT.start;
        self.ip.kind == Kind::Ipv4 && u16_at(&self.bytes, at) & ipv4::DONT_FRAGMENT != 0
    }

    /// Returns whether a router would accept the packet, which requires a valid header checksum. Zero is accepted too,
    /// because drivers leave the checksum to the device.
    pub(super) fn is_intact(&self) -> bool {
        let header = self.bytes.get(usize::from(self.ip.offset)..self.ip.end()).unwrap_or_default();
        let is_left = || u16_at(header, ipv4::field::CHECKSUM.start) == 0;
        self.ip.kind != Kind::Ipv4 || Sum::of(header).is_valid() || is_left()
    }

    /// Returns the minimum data length of the first fragment. For IPv4, this is one unit (rule S60), or the header up
    /// to the flags for TCP, because receivers discard a first fragment without the flags (RFC 1858, RFC 3128). For
    /// IPv6, it is the length of all headers up to and including the transport header (RFC 7112 section 5). `data` is
    /// the contiguous start of the packet's data. Returns `None` if no first fragment could contain all headers.
    pub(super) fn first_len_min(
        &self,
        stack: &Stack,
        data: &[u8],
        data_len: usize,
    ) -> Option<usize> {
        if self.ip.kind == Kind::Ipv4 {
            let at = usize::from(self.ip.offset) + ipv4::field::PROTOCOL.start;
            let is_tcp = self.bytes.get(at) == Some(&ipv4::PROTOCOL_TCP) && self.offset == 0;
            return Some(if is_tcp { TCP_FLAGS_END as usize } else { UNIT });
        }
        let next_header = self.bytes[self.len - ipv6_fragment::HEADER_LEN];
        let chain = match first_len_min(next_header, data.get(..data_len).unwrap_or(data)) {
            // The first slice contains all known headers, so headers in other slices do not matter.
            None if data.len() < data_len => 0,
            chain => chain?,
        };
        let behind = |layer: &&Layer| usize::from(layer.offset) >= self.data_start;
        let is_outermost =
            |layer: &&Layer| !matches!(layer.kind, Kind::Ipv6Extension | Kind::Ipv6Fragment);
        let upper = stack.layers().iter().filter(behind).find(is_outermost);
        let known = upper.map_or(0, |upper| upper.end() - self.data_start);
        Some(chain.max(known).max(UNIT))
    }

    /// Writes the headers of a fragment with `len` bytes of data, which starts `before` bytes into the packet's data.
    /// `more` says whether other fragments follow.
    pub(super) fn write(&mut self, out: &mut [u8], before: usize, len: usize, more: bool) {
        out.copy_from_slice(&self.bytes[..self.len]);
        let more = more || self.more;
        let offset = (self.offset + before) as u16;
        if let Some(start) = self.pppoe {
            let counted = self.len - start - pppoe::field::PROTOCOL.start + len;
            put_u16(out, start + pppoe::field::LENGTH.start, counted as u16);
        }
        match self.ip.kind {
            Kind::Ipv4 => {
                self.write_v4(out, offset, len, more);
                // If the packet itself is a later fragment, its options are already right.
                if self.offset == 0 {
                    self.blank_options();
                }
            }
            _ => self.write_v6(out, offset, len, more),
        }
    }

    fn write_v4(&self, out: &mut [u8], offset: u16, len: usize, more: bool) {
        let start = usize::from(self.ip.offset);
        let total_len = usize::from(self.ip.len) + len;
        put_u16(out, start + ipv4::field::TOTAL_LENGTH.start, total_len as u16);
        let at = start + ipv4::field::FRAGMENT.start;
        // DF and the reserved bit are kept, unlike in Linux (rule S31).
        let kept = u16_at(out, at) & (ipv4::RESERVED | ipv4::DONT_FRAGMENT);
        let more = if more { ipv4::MORE_FRAGMENTS } else { 0 };
        put_u16(out, at, kept | more | (offset / 8));
        let at = start + ipv4::field::CHECKSUM.start;
        put_u16(out, at, 0);
        let sum = out.get(start..self.ip.end()).map_or(Sum::ZERO, Sum::of);
        put_u16(out, at, sum.checksum());
    }

    fn write_v6(&self, out: &mut [u8], offset: u16, len: usize, more: bool) {
        let payload_len = self.ip_header_len() - ipv6::HEADER_LEN + len;
        let at = usize::from(self.ip.offset) + ipv6::field::PAYLOAD_LENGTH.start;
        put_u16(out, at, payload_len as u16);
        let at = self.len - ipv6_fragment::HEADER_LEN + ipv6_fragment::field::FRAGMENT.start;
        let more = if more { ipv6_fragment::MORE_FRAGMENTS } else { 0 };
        put_u16(out, at, offset | more);
    }

    /// Appends a fragment header after the unfragmentable part (RFC 8200 section 4.5).
    fn append_fragment_header(&mut self, next_header_at: usize, identification: u32) {
        let next_header = core::mem::replace(&mut self.bytes[next_header_at], FRAGMENT_PROTOCOL);
        let at = self.len;
        self.bytes[at] = next_header;
        put_u32(&mut self.bytes, at + ipv6_fragment::field::IDENTIFICATION.start, identification);
        self.len += ipv6_fragment::HEADER_LEN;
    }

    /// Overwrites the options that belong only in the first fragment with NOPs (rule S60, RFC 791).
    fn blank_options(&mut self) {
        let mut at = usize::from(self.ip.offset) + ipv4::HEADER_LEN;
        let end = self.ip.end();
        while at < end && self.bytes[at] != OPTION_END {
            let kind = self.bytes[at];
            if kind == OPTION_NOTHING {
                at += 1;
                continue;
            }
            let len = self.bytes.get(at + 1).map_or(0, |len| usize::from(*len));
            if len < 2 || at + len > end {
                return;
            }
            if kind & OPTION_COPIED == 0 {
                self.bytes[at..at + len].fill(OPTION_NOTHING);
            }
            at += len;
        }
    }
}

/// Headers that every fragment repeats.
struct Unfragmentable {
    /// End of the repeated headers.
    end: usize,
    /// Offset of the next-header field in the last repeated header.
    next_header: usize,
}

/// Returns the part of an IPv6 packet that routers read: up to the last routing header, or up to the hop-by-hop options
/// if there is none (RFC 8200 section 4.5).
fn unfragmentable(head: &[u8], ip: Layer, behind: &[Layer]) -> Result<Unfragmentable, NoFragments> {
    let fixed = usize::from(ip.offset) + ipv6::field::NEXT_HEADER.start;
    let mut part = Unfragmentable { end: ip.end(), next_header: fixed };
    let mut announced = head.get(fixed).copied();
    for layer in behind {
        let at = usize::from(layer.offset);
        match layer.kind {
            Kind::Ipv6Fragment => return Err(NoFragments::AlreadyFragment),
            Kind::Ipv6Extension => {
                if matches!(announced, Some(HOP_BY_HOP | ROUTING)) {
                    part = Unfragmentable { end: layer.end(), next_header: at };
                }
                announced = head.get(at).copied();
            }
            _ => break,
        }
    }
    Ok(part)
}

/// Unit of fragment offsets in bytes (RFC 791 section 3.1).
const UNIT: usize = 8;
/// Next-header values (RFC 8200 section 4).
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT_PROTOCOL: u8 = 44;
/// IPv4 options (RFC 791 section 3.1).
const OPTION_END: u8 = 0;
const OPTION_NOTHING: u8 = 1;
/// Bit in an option's type that requests a copy in every fragment.
const OPTION_COPIED: u8 = 0x80;
