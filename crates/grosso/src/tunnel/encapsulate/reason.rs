//! Named refusals, with their counters.

use crate::reasons::reasons;

reasons! {
    /// Reason why a packet was not encapsulated.
    Refusal {
        /// The tunnel carries Ethernet, and the frame is not Ethernet.
        NotEthernet = "not_ethernet",
        /// The tunnel carries IP, and the frame is not IP, has another IP version, or has a PPPoE or MPLS header.
        NotIp = "not_ip",
        /// The tunnel carries IP, and the frame has a VLAN tag that would be lost.
        VlanTag = "vlan_tag",
        /// The frame ends inside its headers.
        Truncated = "truncated",
        /// A header is malformed.
        Malformed = "malformed",
        /// The frame is shorter than the length in its IP header.
        Short = "short",
        /// The IP length is zero, and the frame is not a superframe.
        LengthZero = "length_zero",
        /// The superframe represents IP fragments and must be fragmented first.
        Superframe = "superframe",
        /// The tunnel numbers its packets, so the superframe must be segmented first (rule S43).
        SuperframeNumbered = "superframe_numbered",
        /// The packet would be too long for the length fields of the outer headers (rule T13, B1).
        TooLong = "too_long",
        /// The partial checksum lies outside the packet, in its headers, or at an odd offset (rule C3).
        ChecksumOutside = "checksum_outside",
        /// The packet's tunnel encapsulation limit has been reached (RFC 2473 section 4.1.1).
        EncapsulationLimit = "encapsulation_limit",
        /// The packet already has as many IP headers as segmentation supports (rule S4, B10).
        TooDeep = "too_deep",
    }
}

impl core::error::Error for Refusal {}

/// Counters of encapsulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EncapsulateStats {
    /// Number of frames encapsulated. A superframe counts as one frame.
    pub frames: u64,
    /// Number of packets encapsulated. Each packet of a superframe counts.
    pub packets: u64,
    /// Total length in bytes of the parts of frames that the tunnel carries.
    pub bytes: u64,
    /// Number of superframes encapsulated.
    pub superframes: u64,
    /// Number of frames encapsulated with remote checksum offload (rule C52).
    pub remote_checksums: u64,
    /// Number of frames refused, by reason.
    pub refused: [u64; Refusal::COUNT],
}

impl Default for EncapsulateStats {
    fn default() -> Self {
        Self {
            frames: 0,
            packets: 0,
            bytes: 0,
            superframes: 0,
            remote_checksums: 0,
            refused: [0; Refusal::COUNT],
        }
    }
}

impl EncapsulateStats {
    /// Returns the number of frames refused for this reason.
    #[must_use]
    pub const fn refused(&self, reason: Refusal) -> u64 {
        self.refused[reason.index()]
    }
}
