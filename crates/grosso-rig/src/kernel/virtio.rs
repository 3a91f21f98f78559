//! A virtio header codec that does not use the engine's code.

/// A virtio header in native byte order, with its fields in the standard's order (`docs/rules.md` section 6.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VirtioHeader {
    /// Flags: 1 for a checksum to be completed, 2 for a verified checksum, 8 for an outer UDP checksum of a tunnel that
    /// must be completed.
    pub flags: u8,
    /// Type: 0 for none, 1 for TCP over IPv4, 3 for UDP fragments, 4 for TCP over IPv6, 5 for UDP segments; plus 0x20
    /// or 0x40 in a tunnel.
    pub gso_type: u8,
    /// Length of all headers in bytes, as a hint.
    pub header_length: u16,
    /// Payload bytes per segment.
    pub gso_size: u16,
    /// Offset of the first checksummed byte in the frame.
    pub checksum_start: u16,
    /// Offset of the checksum field from `checksum_start`.
    pub checksum_offset: u16,
    /// Tunnel around the superframe; present only in the 24-byte form.
    pub tunnel: TunnelOffsets,
}

/// Offsets of a tunneled superframe's headers in the frame; 0 without a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TunnelOffsets {
    /// Offset of the outer UDP header.
    pub outer_transport: u16,
    /// Offset of the inner IP header.
    pub inner_network: u16,
}

impl VirtioHeader {
    /// Length in bytes of the short form, without `tunnel`.
    pub const BYTES: usize = 10;
    /// Length in bytes of the long form, which includes `tunnel`.
    pub const TUNNEL_BYTES: usize = 24;
    /// Flag: the checksum must be completed.
    pub const NEEDS_CHECKSUM: u8 = 1;
    /// Flag: the checksum was verified.
    pub const DATA_VALID: u8 = 2;
    /// Flag: the outer UDP checksum of a tunnel must be completed.
    pub const TUNNEL_CHECKSUM: u8 = 8;
    /// Type: TCP over IPv4.
    pub const TCP_IPV4: u8 = 1;
    /// Type: UDP fragments.
    pub const UDP_FRAGMENTS: u8 = 3;
    /// Type: TCP over IPv6.
    pub const TCP_IPV6: u8 = 4;
    /// Type: UDP segments.
    pub const UDP_SEGMENTS: u8 = 5;
    /// Added to the type: the superframe is inside a UDP tunnel over IPv4.
    pub const TUNNEL_IPV4: u8 = 0x20;
    /// Added to the type: the superframe is inside a UDP tunnel over IPv6.
    pub const TUNNEL_IPV6: u8 = 0x40;
    /// Added to the type: the first packet of the superframe may have CWR.
    pub const ECN: u8 = 0x80;

    /// Decodes the short form.
    pub fn parse(bytes: &[u8; Self::BYTES]) -> Self {
        let word = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        Self {
            flags: bytes[0],
            gso_type: bytes[1],
            header_length: word(2),
            gso_size: word(4),
            checksum_start: word(6),
            checksum_offset: word(8),
            tunnel: TunnelOffsets::default(),
        }
    }

    /// Encodes the long form, with `tunnel`, whose two fields are always little endian.
    pub fn to_bytes(&self) -> [u8; Self::TUNNEL_BYTES] {
        let mut bytes = [0; Self::TUNNEL_BYTES];
        bytes[0] = self.flags;
        bytes[1] = self.gso_type;
        let words = [self.header_length, self.gso_size, self.checksum_start, self.checksum_offset];
        for (field, word) in bytes[2..10].chunks_exact_mut(2).zip(words) {
            field.copy_from_slice(&word.to_ne_bytes());
        }
        bytes[20..22].copy_from_slice(&self.tunnel.outer_transport.to_le_bytes());
        bytes[22..24].copy_from_slice(&self.tunnel.inner_network.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_header_is_read_back() {
        let header = VirtioHeader {
            flags: 1,
            gso_type: 4,
            header_length: 74,
            gso_size: 1440,
            checksum_start: 54,
            checksum_offset: 16,
            tunnel: TunnelOffsets::default(),
        };
        let bytes = header.to_bytes();
        assert_eq!(bytes[..2], [1, 4]);
        assert_eq!(VirtioHeader::parse(bytes.first_chunk().unwrap()), header);
    }
}
