//! Outer IP header that a tunnel adds to its packets.

use core::net::IpAddr;

use grosso_checksum::{Sum, pseudo_v4, pseudo_v6};
use grosso_wire::{Kind, ipv4, ipv6};

use crate::{
    bytes::{put_u16, put_u32, u16_at, u32_at},
    tunnel::congestion,
};

/// Addresses of both endpoints, which have the same IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OuterEnds {
    V4 { source: [u8; 4], destination: [u8; 4] },
    V6 { source: [u8; 16], destination: [u8; 16] },
}

/// Fields of the header other than its addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields {
    pub(super) traffic_class: u8,
    /// Flow label (20 bits), used only for IPv6.
    pub(super) flow_label: u32,
    pub(super) hop_limit: u8,
    /// Identification, used only for IPv4.
    pub(super) identification: u16,
    /// DF bit, used only for IPv4.
    pub(super) dont_fragment: bool,
    pub(super) protocol: u8,
    /// Number of bytes after the header.
    pub(super) payload_len: usize,
}

impl OuterEnds {
    /// Returns the addresses of the endpoints, or `None` if their families differ.
    pub(super) const fn new(source: IpAddr, destination: IpAddr) -> Option<Self> {
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                Some(Self::V4 { source: source.octets(), destination: destination.octets() })
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                Some(Self::V6 { source: source.octets(), destination: destination.octets() })
            }
            _ => None,
        }
    }

    /// Returns the length of the header in bytes.
    pub(super) const fn header_len(&self) -> usize {
        match self {
            Self::V4 { .. } => ipv4::HEADER_LEN,
            Self::V6 { .. } => ipv6::HEADER_LEN,
        }
    }

    /// Returns how many bytes of the header count towards its length field.
    pub(super) const fn counted_len(&self) -> usize {
        match self {
            Self::V4 { .. } => ipv4::HEADER_LEN,
            Self::V6 { .. } => 0,
        }
    }

    /// Writes the header into a buffer of its length. A length that does not fit into its field is written as zero, as
    /// in superframes (rules G50, G63).
    pub(super) fn emit(&self, header: &mut [u8], fields: &Fields) {
        let length = u16::try_from(self.counted_len() + fields.payload_len).unwrap_or(0);
        match self {
            Self::V4 { source, destination } => {
                let fragment = if fields.dont_fragment { ipv4::DONT_FRAGMENT } else { 0 };
                header[0..2].copy_from_slice(&[0x45, fields.traffic_class]);
                put_u16(header, 2, length);
                put_u16(header, 4, fields.identification);
                put_u16(header, 6, fragment);
                header[8..12].copy_from_slice(&[fields.hop_limit, fields.protocol, 0, 0]);
                header[12..16].copy_from_slice(source);
                header[16..20].copy_from_slice(destination);
                let checksum = Sum::of(header).checksum();
                put_u16(header, ipv4::field::CHECKSUM.start, checksum);
            }
            Self::V6 { source, destination } => {
                let class = u32::from(fields.traffic_class) << 20;
                put_u32(header, 0, 6 << 28 | class | fields.flow_label);
                put_u16(header, 4, length);
                header[6..8].copy_from_slice(&[fields.protocol, fields.hop_limit]);
                header[8..24].copy_from_slice(source);
                header[24..40].copy_from_slice(destination);
            }
        }
    }

    /// Returns the pseudo-header sum of a UDP datagram of `len` bytes between the endpoints.
    pub(super) fn pseudo_udp(&self, len: usize) -> Sum {
        match self {
            Self::V4 { source, destination } => {
                pseudo_v4(*source, *destination, ipv4::PROTOCOL_UDP, len as u32)
            }
            Self::V6 { source, destination } => {
                pseudo_v6(source, destination, ipv4::PROTOCOL_UDP, len as u32)
            }
        }
    }
}

/// Fields of an inner IP header that the outer header may copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inner {
    pub(super) traffic_class: u8,
    pub(super) hop_limit: u8,
    /// Flow label, or zero for IPv4, which has none.
    #[cfg_attr(
        not(feature = "esp"),
        expect(dead_code, reason = "only ESP copies the flow label of a packet")
    )]
    pub(super) flow_label: u32,
    /// DF bit, or `None` for IPv6, whose routers never fragment packets.
    pub(super) dont_fragment: Option<bool>,
}

impl Inner {
    /// Returns the fields of the IP header of this kind at the start of `packet`.
    pub(super) fn of(packet: &[u8], kind: Kind) -> Self {
        let traffic_class = congestion::traffic_class(packet, kind);
        let byte = |at: usize| packet.get(at).copied().unwrap_or(0);
        if kind == Kind::Ipv4 {
            let fragment = u16_at(packet, ipv4::field::FRAGMENT.start);
            Self {
                traffic_class,
                hop_limit: byte(ipv4::field::TTL.start),
                flow_label: 0,
                dont_fragment: Some(fragment & ipv4::DONT_FRAGMENT != 0),
            }
        } else {
            Self {
                traffic_class,
                hop_limit: byte(ipv6::field::HOP_LIMIT.start),
                flow_label: u32_at(packet, 0) & FLOW_LABEL_MASK,
                dont_fragment: None,
            }
        }
    }
}

/// Flow label bits in the first word of an IPv6 header.
pub(super) const FLOW_LABEL_MASK: u32 = 0xf_ffff;
