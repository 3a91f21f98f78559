//! Named refusals and their counters.

use grosso_wire::{Kind, Refused};

use super::Decapsulation;
use crate::reasons::reasons;

reasons! {
    /// Reason why a packet was not taken out of a tunnel. It stays unchanged.
    Refusal {
        /// It is in no tunnel.
        NoTunnel = "no-tunnel",
        /// An IP fragment, which may be one of a tunnel's: it must be whole first.
        Fragment = "fragment",
        /// ESP, or ESP in UDP, which needs keys.
        Encrypted = "encrypted",
        /// The frame ends inside the headers.
        Truncated = "truncated",
        /// A header around the packet contradicts itself, or the header around it.
        Malformed = "malformed",
        /// There are more headers around the packet than are looked at (rule G7).
        TooDeep = "too-deep",
        /// The frame ends before its IP length says.
        Short = "short",
        /// An IP length of zero in a frame that is no superframe.
        LengthZero = "length-zero",
        /// The packet in the tunnel is longer than the tunnel's own length says.
        InnerLength = "inner-length",
        /// The tunnel carries something else than Ethernet, IP or MPLS (rules W10, W21, W52).
        Protocol = "protocol",
        /// The checksum of the IPv4 header around it is wrong.
        Ipv4Checksum = "ip-checksum",
        /// The checksum of the UDP header around it is wrong.
        UdpChecksum = "udp-checksum",
        /// The checksum of the GRE header around it is wrong (rule W51).
        GreChecksum = "gre-checksum",
        /// UDP over IPv6 without a checksum, where that is not expected (RFC 6936, rule W32, P46).
        UdpChecksumNone = "udp-checksum-none",
        /// GRE of another version, with routing, or with a reserved bit that must be zero (RFC 2784
        /// section 2.3, rule W50).
        GreFlags = "gre-flags",
        /// A VXLAN header without the flag for its network, or with bits that are not known (rule
        /// W30).
        VxlanFlags = "vxlan-flags",
        /// An operations packet, or a header of another version, of the generic protocol extension
        /// (rule W31).
        VxlanGpeFlags = "vxlan-gpe-flags",
        /// Geneve options that do not fill their space exactly (RFC 8926 section 3.5).
        GeneveOptions = "geneve-options",
        /// A Geneve option that must not be ignored, and is not known (RFC 8926 section 3.4, rule
        /// W41).
        GeneveCritical = "geneve-critical",
        /// A control message of Geneve or GUE, which carries no packet to forward (RFC 8926 section
        /// 3.4, rule W21).
        Control = "control",
        /// Flags of GUE that are not known, and change what follows (rule W21).
        GueFlags = "gue-flags",
        /// Remote checksum offload, where it is not expected (rule C56).
        RemoteChecksumOff = "remote-checksum-off",
        /// Remote checksum offload without a checksum around it: nothing protects the packet (rules
        /// C52, C54, B52).
        RemoteChecksumUnprotected = "remote-checksum-unprotected",
        /// Remote checksum offload that points outside the packet, at an odd place, or at another
        /// checksum than the one that is partial (rule C55, P40, P41).
        RemoteChecksumPlace = "remote-checksum-place",
        /// The partial checksum lies neither in a header of the tunnel nor in the packet (rule C3).
        ChecksumOutside = "checksum-outside",
        /// A superframe whose packets are not of the one connection in the tunnel, so that it has to
        /// be cut first (B29).
        Superframe = "superframe",
        /// The link layer of the frame cannot say that it carries the packet.
        LinkFamily = "link-family",
        /// The tunnel met congestion, and the packet in it is of a transport that cannot be told
        /// (RFC 6040 section 4.2, rule W2).
        CongestionUntold = "congestion-untold",
    }
}

impl core::error::Error for Refusal {}

impl Refusal {
    /// The public name of a refused header of this kind.
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
    /// Packets taken out.
    pub packets: u64,
    /// Bytes of these packets, as they are presented.
    pub bytes: u64,
    /// Packets refused, by reason.
    pub refused: [u64; Refusal::COUNT],
}

impl Default for DecapsulateStats {
    fn default() -> Self {
        Self { packets: 0, bytes: 0, refused: [0; Refusal::COUNT] }
    }
}

impl DecapsulateStats {
    /// Packets refused for this reason.
    #[must_use]
    pub const fn refused(&self, reason: Refusal) -> u64 {
        self.refused[reason.index()]
    }

    /// Counts a packet, or its refusal.
    #[inline]
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
