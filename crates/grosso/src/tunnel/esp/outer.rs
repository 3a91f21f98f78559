//! The IP header around a tunnelled packet, and what it says to the packet in it.

use grosso_checksum::Sum;
use grosso_wire::{ipv4, ipv6};

use super::{association::Outer, place::Version, reason::Refusal};
use crate::{
    bytes::{put_u16, put_u32, u16_at, u32_at},
    tunnel::congestion::{self, Congestion, Untold},
};

impl Outer {
    /// The version of IP around the packets.
    pub(super) const fn version(&self) -> Version {
        match self {
            Self::V4 { .. } => Version::V4,
            Self::V6 { .. } => Version::V6,
        }
    }

    /// Bytes of the header.
    pub(super) const fn header_len(&self) -> usize {
        match self {
            Self::V4 { .. } => ipv4::HEADER_LEN,
            Self::V6 { .. } => ipv6::HEADER_LEN,
        }
    }

    /// Writes the header of a packet that carries `inner` in `payload_len` bytes (RFC 4301 section
    /// 5.1.2).
    ///
    /// DSCP and ECN are those of the inner packet (RFC 6040 section 4.1), and so are the
    /// don't-fragment bit and the flow label; where the inner packet has none, IPv6 inside forbids
    /// fragments as its own routers do. The identification is the end of the sequence number.
    pub(super) fn emit(
        &self,
        header: &mut [u8],
        inner: &Inner,
        payload_len: usize,
        protocol: u8,
        sequence: u64,
    ) {
        match self {
            Self::V4 { source, destination } => {
                let fragment = if inner.dont_fragment { ipv4::DONT_FRAGMENT } else { 0 };
                header[0..2].copy_from_slice(&[0x45, inner.traffic_class]);
                put_u16(header, 2, (ipv4::HEADER_LEN + payload_len) as u16);
                put_u16(header, 4, sequence as u16);
                put_u16(header, 6, fragment);
                header[8..12].copy_from_slice(&[HOP_LIMIT, protocol, 0, 0]);
                header[12..16].copy_from_slice(&source.octets());
                header[16..20].copy_from_slice(&destination.octets());
                let checksum = Sum::of(header).checksum();
                put_u16(header, ipv4::field::CHECKSUM.start, checksum);
            }
            Self::V6 { source, destination } => {
                let class = u32::from(inner.traffic_class) << 20;
                put_u32(header, 0, 6 << 28 | class | inner.flow_label);
                put_u16(header, 4, payload_len as u16);
                header[6..8].copy_from_slice(&[protocol, HOP_LIMIT]);
                header[8..24].copy_from_slice(&source.octets());
                header[24..40].copy_from_slice(&destination.octets());
            }
        }
    }
}

/// What an IP header says that the one around it repeats.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inner {
    traffic_class: u8,
    flow_label: u32,
    dont_fragment: bool,
}

impl Inner {
    /// Of the header at the front of `packet`.
    pub(super) fn of(packet: &[u8], version: Version) -> Self {
        match version {
            Version::V4 => Self {
                traffic_class: traffic_class(packet, version),
                flow_label: 0,
                dont_fragment: u16_at(packet, ipv4::field::FRAGMENT.start) & ipv4::DONT_FRAGMENT
                    != 0,
            },
            Version::V6 => Self {
                traffic_class: traffic_class(packet, version),
                flow_label: u32_at(packet, 0) & FLOW_LABEL_MASK,
                dont_fragment: true,
            },
        }
    }
}

/// Tells the packet that leaves a tunnel what congestion the tunnel met: `class` is the traffic
/// class of the header that was around it.
pub(super) fn tell_congestion(
    packet: &mut [u8],
    version: Version,
    class: u8,
) -> Result<(), Refusal> {
    let inner = traffic_class(packet, version);
    let congestion =
        Congestion::leaving(inner, class).map_err(|Untold| Refusal::CongestionUntold)?;
    congestion.tell(packet, version.kind());
    Ok(())
}

/// DSCP and ECN of the header at the front of `packet`.
pub(super) fn traffic_class(packet: &[u8], version: Version) -> u8 {
    congestion::traffic_class(packet, version.kind())
}

/// Hop limit or TTL of the header around a packet (RFC 1700's default).
const HOP_LIMIT: u8 = 64;
const FLOW_LABEL_MASK: u32 = 0xf_ffff;
