//! Congestion notification across tunnels (RFC 6040): the ECN field of the outer header, and the congestion mark that a
//! decapsulated packet inherits from it.

use grosso_checksum::update;
use grosso_wire::{Kind, ipv4};

use crate::bytes::{put_u16, put_u32, u16_at, u32_at};

/// Whether routers may mark a tunnel's outer packets (RFC 6040 section 4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CongestionMode {
    /// Marking is allowed: the outer header copies the ECN field of the packet, including CE. In contrast, Linux writes
    /// ECT(0) to the outer header of a packet marked CE, as specified by RFC 3168 section 9.1.1. This hides earlier
    /// marks from the tunnel's egress (rule W1).
    #[default]
    Normal,
    /// Marking is not allowed, because the tunnel's egress would not propagate the mark. The outer header is Not-ECT.
    Compatibility,
}

impl CongestionMode {
    /// Returns the ECN field of the outer header around a packet with this traffic class.
    pub(crate) const fn entering(self, inner: u8) -> u8 {
        match self {
            Self::Normal => inner & ECN_MASK,
            Self::Compatibility => NOT_CAPABLE,
        }
    }
}

/// Change to the ECN field of a decapsulated packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Congestion {
    /// No change.
    Unchanged,
    /// No change, although the combination with the outer ECN field is invalid. The caller should log it (RFC 6040
    /// section 4.2).
    Contradicted,
    /// The field becomes ECT(1), which some senders use as a weaker congestion signal.
    Capable1,
    /// The field becomes CE.
    Experienced,
}

/// Error: congestion cannot be signaled, because the packet's transport does not support ECN. The packet must be
/// dropped instead (RFC 6040 section 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unsignaled;

impl Congestion {
    /// Looks up the ECN fields of the packet and the outer header in the table of RFC 6040 figure 4 (rule W2).
    pub(crate) const fn leaving(inner: u8, outer: u8) -> Result<Self, Unsignaled> {
        match (inner & ECN_MASK, outer & ECN_MASK) {
            (NOT_CAPABLE, EXPERIENCED) => Err(Unsignaled),
            (NOT_CAPABLE, CAPABLE_0 | CAPABLE_1) => Ok(Self::Contradicted),
            (CAPABLE_0 | CAPABLE_1, EXPERIENCED) => Ok(Self::Experienced),
            (CAPABLE_0, CAPABLE_1) => Ok(Self::Capable1),
            (EXPERIENCED, CAPABLE_1) => Ok(Self::Contradicted),
            _ => Ok(Self::Unchanged),
        }
    }

    /// Writes the ECN field to the IP header of kind `kind` at the start of `packet`. The IPv4 checksum is updated
    /// rather than recomputed, so that a wrong checksum stays wrong (B27).
    pub(crate) fn apply(self, packet: &mut [u8], kind: Kind) {
        let ecn = match self {
            Self::Unchanged | Self::Contradicted => return,
            Self::Capable1 => CAPABLE_1,
            Self::Experienced => EXPERIENCED,
        };
        let marked = traffic_class(packet, kind) & !ECN_MASK | ecn;
        if kind == Kind::Ipv4 {
            let old = u16_at(packet, 0);
            let new = old & 0xff00 | u16::from(marked);
            let at = ipv4::field::CHECKSUM.start;
            let checksum = update(u16_at(packet, at), old, new);
            put_u16(packet, 0, new);
            put_u16(packet, at, checksum);
        } else {
            let word = u32_at(packet, 0) & !TRAFFIC_CLASS_MASK | u32::from(marked) << 20;
            put_u32(packet, 0, word);
        }
    }
}

/// Returns the traffic class (DSCP and ECN) of the IP header of kind `kind` at the start of `packet`.
pub(crate) fn traffic_class(packet: &[u8], kind: Kind) -> u8 {
    let word = u16_at(packet, 0);
    if kind == Kind::Ipv4 { word as u8 } else { (word >> 4) as u8 }
}

const TRAFFIC_CLASS_MASK: u32 = 0x0ff0_0000;
const ECN_MASK: u8 = 3;
const NOT_CAPABLE: u8 = 0;
const CAPABLE_1: u8 = 1;
const CAPABLE_0: u8 = 2;
const EXPERIENCED: u8 = 3;
