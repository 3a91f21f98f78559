//! Named refusals, with their counters.

use grosso_wire::{Kind, Refused};

use super::Decapsulation;
use crate::reasons::reasons;

reasons! {
    /// Reason why a packet was not decapsulated. The frame is unchanged.
    Refusal {
        /// The packet is not in a tunnel.
        NoTunnel = "no_tunnel",
        /// The packet is an IP fragment, possibly of a tunnel packet. It must be reassembled first.
        Fragment = "fragment",
        /// The packet is ESP, or ESP in UDP, and needs keys.
        Encrypted = "encrypted",
        /// The frame ends inside the headers.
        Truncated = "truncated",
        /// An outer header is malformed or contradicts the header before it.
        Malformed = "malformed",
        /// The packet has more outer headers than the limit allows (rule G7).
        TooDeep = "too_deep",
        /// The frame is shorter than the length in its IP header.
        Short = "short",
        /// The IP length is zero, and the frame is not a superframe.
        LengthZero = "length_zero",
        /// The inner packet is longer than the outer length allows.
        InnerLength = "inner_length",
        /// The tunnel carries something other than Ethernet, IP or MPLS (rules W10, W21, W52).
        Protocol = "protocol",
        /// The outer IPv4 header checksum is wrong.
        Ipv4Checksum = "ip_checksum",
        /// The outer UDP checksum is wrong.
        UdpChecksum = "udp_checksum",
        /// The GRE checksum is wrong (rule W51).
        GreChecksum = "gre_checksum",
        /// The outer UDP header over IPv6 has no checksum, which is not accepted here (RFC 6936, rule W32, P46).
        UdpChecksumNone = "udp_checksum_none",
        /// The GRE header has an unsupported version, routing, or a reserved bit that must be zero (RFC 2784 section
        /// 2.3, rule W50).
        GreFlags = "gre_flags",
        /// The VXLAN header has no valid network identifier, or has unknown flags (rule W30).
        VxlanFlags = "vxlan_flags",
        /// The VXLAN-GPE packet is an OAM packet or has an unsupported version (rule W31).
        VxlanGpeFlags = "vxlan_gpe_flags",
        /// The Geneve options do not fill the option length exactly (RFC 8926 section 3.5).
        GeneveOptions = "geneve_options",
        /// The packet has an unknown critical Geneve option (RFC 8926 section 3.4, rule W41).
        GeneveCritical = "geneve_critical",
        /// The packet is a control message of Geneve or GUE and carries no packet to forward (RFC 8926 section 3.4,
        /// rule W21).
        Control = "control",
        /// The GUE header has unknown flags that change its layout (rule W21).
        GueFlags = "gue_flags",
        /// The packet uses remote checksum offload, which is not accepted here (rule C56).
        RemoteChecksumOff = "remote_checksum_off",
        /// The packet uses remote checksum offload without an outer checksum, so nothing protects it (rules C52, C54,
        /// B52).
        RemoteChecksumUnprotected = "remote_checksum_unprotected",
        /// The packet uses remote checksum offload with an offset that is odd, outside the packet, or that of a
        /// checksum other than the partial one (rule C55, P40, P41).
        RemoteChecksumPlace = "remote_checksum_place",
        /// The partial checksum is neither in a header of the tunnel nor in the packet (rule C3).
        ChecksumOutside = "checksum_outside",
        /// The superframe does not contain a single inner TCP or UDP superframe, so it must be segmented first (B29).
        Superframe = "superframe",
        /// The link layer of the frame cannot express the type of the inner packet.
        LinkFamily = "link_family",
        /// The outer packet is marked CE, but the inner transport does not support ECN (RFC 6040 section 4.2, rule W2).
        CongestionUntold = "congestion_untold",
    }
}

impl core::error::Error for Refusal {}

impl Refusal {
    /// Returns the reason to report for a refused header of this kind.
    pub(super) const fn of(kind: Kind, refused: Refused) -> Self {
        match (kind, refused) {
            (_, Refused::Control) => Self::Control,
            (_, Refused::Options) => Self::GeneveOptions,
            (Kind::Gre, _) => Self::GreFlags,
            (Kind::Gue, _) => Self::GueFlags,
            (Kind::VxlanGpe, Refused::Version) => Self::VxlanGpeFlags,
            (Kind::Vxlan | Kind::VxlanGpe, _) => Self::VxlanFlags,
            _ => Self::Protocol,
        }
    }
}

/// Counters of decapsulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DecapsulateStats {
    /// Number of packets decapsulated.
    pub packets: u64,
    /// Total length of the decapsulated packets in bytes.
    pub bytes: u64,
    /// Number of packets refused, by reason.
    pub refused: [u64; Refusal::COUNT],
}

impl Default for DecapsulateStats {
    fn default() -> Self {
        Self { packets: 0, bytes: 0, refused: [0; Refusal::COUNT] }
    }
}

impl DecapsulateStats {
    /// Returns the number of packets refused for this reason.
    #[must_use]
    pub const fn refused(&self, reason: Refusal) -> u64 {
        self.refused[reason.index()]
    }

    /// Counts a decapsulated or refused packet.
    pub fn count(&mut self, planned: &Result<Decapsulation, Refusal>) {
        match planned {
            Ok(plan) => {
                self.packets += 1;
                self.bytes += plan.packet_len() as u64;
            }
            Err(reason) => self.refused[reason.index()] += 1,
        }
    }
}
