//! Division of a packet into the link layer, the outermost IP header with the extension headers that are not encrypted,
//! and the payload.

use grosso_checksum::update;
use grosso_wire::{
    Kind, Layer, LinkType, Ports, Stack, Stop, dissect, ethernet, ipv4, ipv6, ipv6_fragment,
};

use super::reason::Refusal;
use crate::{
    bytes::{put_u16, u16_at},
    tunnel::link,
};

/// Outermost IP packet of a frame. All offsets are in bytes from the start of the frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Network {
    stack: Stack,
    /// Index of the IP header in the stack.
    index: usize,
    /// Offset of the packet.
    pub(super) start: usize,
    /// End of the packet according to its length field.
    pub(super) end: usize,
    /// IP version.
    pub(super) version: Version,
}

/// IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V4,
    V6,
}

/// Point at which the payload of an IP packet starts, after the extension headers that are not encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Split {
    /// Offset of the payload, in bytes from the start of the frame.
    pub(super) at: usize,
    /// Offset of the next-header field that gives the payload type.
    pub(super) next_header_at: usize,
    /// Value of the next-header field.
    pub(super) next_header: u8,
}

/// Side that decides which extension headers are not encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Destination options after a routing header are only for the final destination, so they are encrypted. The other
    /// extension headers are not, because nodes on the path read them (RFC 4303 section 3.1.1).
    Encrypting,
    /// The peer decided: every extension header that arrives unencrypted stays in front of the payload.
    Decrypting,
}

impl Network {
    /// Finds the outermost IP header of a frame. The IP packet must end inside the frame.
    pub(super) fn find(frame: &[u8], link: LinkType) -> Result<Self, Refusal> {
        let stack = dissect(frame, link, &Ports::NONE);
        let is_ip = |layer: &Layer| layer.kind.is_ip();
        let Some(index) = stack.layers().iter().position(is_ip) else {
            return Err(match stack.stop {
                Stop::Truncated => Refusal::Short,
                Stop::Malformed => Refusal::Malformed,
                _ => Refusal::NotIp,
            });
        };
        let layer = stack.layers()[index];
        let start = usize::from(layer.offset);
        let (version, declared, header_len) = if layer.kind == Kind::Ipv4 {
            let total_length = u16_at(frame, start + ipv4::field::TOTAL_LENGTH.start);
            (Version::V4, total_length, usize::from(layer.len))
        } else {
            let payload_length = u16_at(frame, start + ipv6::field::PAYLOAD_LENGTH.start);
            (Version::V6, payload_length, 0)
        };
        if declared == 0 {
            return Err(Refusal::LengthZero);
        }
        if usize::from(declared) < header_len {
            return Err(Refusal::Malformed);
        }
        let before = if version == Version::V6 { ipv6::HEADER_LEN } else { 0 };
        let end = start + before + usize::from(declared);
        if end > frame.len() {
            return Err(Refusal::Short);
        }
        Ok(Self { stack, index, start, end, version })
    }

    /// Returns the start of the payload.
    ///
    /// # Errors
    /// Returns an error if the packet is a fragment, or its extension headers end too early.
    pub(super) fn split(&self, frame: &[u8], side: Side) -> Result<Split, Refusal> {
        match self.version {
            Version::V4 => self.split_ipv4(frame),
            Version::V6 => self.split_ipv6(frame, side),
        }
    }

    fn split_ipv4(&self, frame: &[u8]) -> Result<Split, Refusal> {
        let fragment = u16_at(frame, self.start + ipv4::field::FRAGMENT.start);
        if fragment & (ipv4::MORE_FRAGMENTS | ipv4::OFFSET_MASK) != 0 {
            return Err(Refusal::Fragment);
        }
        let next_header_at = self.start + ipv4::field::PROTOCOL.start;
        let at = self.stack.layers().get(self.index).map_or(self.end, Layer::end);
        Self::checked(frame, at, next_header_at, self.end)
    }

    fn split_ipv6(&self, frame: &[u8], side: Side) -> Result<Split, Refusal> {
        let mut next_header_at = self.start + ipv6::field::NEXT_HEADER.start;
        let mut at = self.start + ipv6::HEADER_LEN;
        let mut behind_routing = false;
        let mut layers = self.stack.layers().iter().skip(self.index + 1);
        loop {
            match frame.get(next_header_at).copied() {
                Some(ipv6::NEXT_HOP_BY_HOP | ipv6::NEXT_FRAGMENT) => {}
                Some(ipv6::NEXT_ROUTING) => behind_routing = true,
                Some(ipv6::NEXT_DESTINATION_OPTIONS)
                    if side == Side::Decrypting || !behind_routing => {}
                _ => break,
            }
            // Dissection ended before this header, because the packet is truncated or has too many headers.
            let Some(layer) = layers.next() else { return Err(Refusal::Malformed) };
            (next_header_at, at) = (usize::from(layer.offset), layer.end());
            if layer.kind == Kind::Ipv6Fragment {
                let word = u16_at(frame, next_header_at + ipv6_fragment::field::FRAGMENT.start);
                if word & (ipv6_fragment::OFFSET_MASK | ipv6_fragment::MORE_FRAGMENTS) != 0 {
                    return Err(Refusal::Fragment);
                }
            }
        }
        Self::checked(frame, at, next_header_at, self.end)
    }

    fn checked(
        frame: &[u8],
        at: usize,
        next_header_at: usize,
        end: usize,
    ) -> Result<Split, Refusal> {
        match frame.get(next_header_at) {
            Some(&next_header) if at <= end => Ok(Split { at, next_header_at, next_header }),
            _ => Err(Refusal::Malformed),
        }
    }

    /// Updates the IP header for a packet of `len` bytes with this payload protocol. The IPv4 checksum is updated
    /// rather than recomputed, so that a wrong checksum stays wrong.
    pub(super) fn announce(
        &self,
        frame: &mut [u8],
        next_header_at: usize,
        protocol: u8,
        len: usize,
    ) {
        match self.version {
            Version::V4 => {
                let length_at = self.start + ipv4::field::TOTAL_LENGTH.start;
                let protocol_at = self.start + ipv4::field::TTL.start;
                let checksum_at = self.start + ipv4::field::CHECKSUM.start;
                let (old_length, old_word) = (u16_at(frame, length_at), u16_at(frame, protocol_at));
                let new_word = old_word & 0xff00 | u16::from(protocol);
                let checksum = update(u16_at(frame, checksum_at), old_length, len as u16);
                put_u16(frame, checksum_at, update(checksum, old_word, new_word));
                put_u16(frame, length_at, len as u16);
                put_u16(frame, protocol_at, new_word);
            }
            Version::V6 => {
                let payload_length_at = self.start + ipv6::field::PAYLOAD_LENGTH.start;
                put_u16(frame, payload_length_at, (len - ipv6::HEADER_LEN) as u16);
                if let Some(byte) = frame.get_mut(next_header_at) {
                    *byte = protocol;
                }
            }
        }
    }

    /// Updates the link layer in front of the packet for this IP version and for a packet length that has changed by
    /// `grown` bytes. `prefix` is the frame up to the packet.
    pub(super) fn adapt_link(
        &self,
        prefix: &mut [u8],
        version: Version,
        grown: isize,
    ) -> Result<(), Refusal> {
        let links = self.stack.layers().get(..self.index).unwrap_or_default();
        link::lengthen(prefix, links, grown).ok_or(Refusal::TooLong)?;
        match links.last() {
            Some(last) if version != self.version => {
                link::name_payload(prefix, last, version.ethertype()).ok_or(Refusal::LinkFamily)
            }
            _ => Ok(()),
        }
    }
}

impl Version {
    /// Returns the protocol number that announces a packet of this IP version inside another packet.
    pub(super) const fn protocol(self) -> u8 {
        match self {
            Self::V4 => ipv4::PROTOCOL_IPV4,
            Self::V6 => ipv4::PROTOCOL_IPV6,
        }
    }

    /// Returns the header kind of this version.
    pub(super) const fn kind(self) -> Kind {
        match self {
            Self::V4 => Kind::Ipv4,
            Self::V6 => Kind::Ipv6,
        }
    }

    const fn ethertype(self) -> u16 {
        match self {
            Self::V4 => ethernet::ETHERTYPE_IPV4,
            Self::V6 => ethernet::ETHERTYPE_IPV6,
        }
    }
}
