//! IP header around a tunneled packet, and the congestion mark that the inner packet inherits from it.

use super::{association::Outer, place::Version, reason::Refusal};
use crate::tunnel::{
    congestion::{self, Congestion, Unsignaled},
    outer::{Fields, Inner, OuterEnds},
};

impl Outer {
    /// Returns the IP version of the outer header.
    pub(super) const fn version(&self) -> Version {
        match self {
            Self::V4 { .. } => Version::V4,
            Self::V6 { .. } => Version::V6,
        }
    }

    /// Returns the length of the header in bytes.
    pub(super) const fn header_len(&self) -> usize {
        self.ends().header_len()
    }

    /// Writes the header of a packet that carries `inner` in `payload_len` bytes (RFC 4301 section
    /// 5.1.2).
    ///
    /// DSCP, ECN, the DF bit and the flow label are copied from the inner packet (RFC 6040 section 4.1 for the first
    /// two). For an inner IPv6 packet, which has no DF bit, the outer DF bit is set, because IPv6 routers never
    /// fragment. The identification is the low part of the sequence number.
    pub(super) fn emit(
        &self,
        header: &mut [u8],
        inner: &Inner,
        payload_len: usize,
        protocol: u8,
        sequence: u64,
    ) {
        let fields = Fields {
            traffic_class: inner.traffic_class,
            flow_label: inner.flow_label,
            hop_limit: HOP_LIMIT,
            identification: sequence as u16,
            dont_fragment: inner.dont_fragment.unwrap_or(true),
            protocol,
            payload_len,
        };
        self.ends().emit(header, &fields);
    }

    const fn ends(&self) -> OuterEnds {
        match self {
            Self::V4 { source, destination } => {
                OuterEnds::V4 { source: source.octets(), destination: destination.octets() }
            }
            Self::V6 { source, destination } => {
                OuterEnds::V6 { source: source.octets(), destination: destination.octets() }
            }
        }
    }
}

/// Applies the congestion that was signaled in the tunnel to the decapsulated packet. `class` is the traffic class of
/// the outer header.
pub(super) fn apply_congestion(
    packet: &mut [u8],
    version: Version,
    class: u8,
) -> Result<(), Refusal> {
    let inner = traffic_class(packet, version);
    let congestion =
        Congestion::leaving(inner, class).map_err(|Unsignaled| Refusal::CongestionUntold)?;
    congestion.apply(packet, version.kind());
    Ok(())
}

/// Returns the traffic class (DSCP and ECN) of the IP header at the start of `packet`.
pub(super) fn traffic_class(packet: &[u8], version: Version) -> u8 {
    congestion::traffic_class(packet, version.kind())
}

/// Hop limit or TTL of the outer header: the default from RFC 1700.
const HOP_LIMIT: u8 = 64;
