//! Named refusals and their counters.

use crate::reasons::reasons;

reasons! {
    /// Reason why a packet was not encapsulated.
    Refusal {
        /// The tunnel carries Ethernet frames, and this is none.
        NotEthernet = "not-ethernet",
        /// The tunnel carries IP packets, and this is none, or is of the other version, or is one
        /// behind a header that the tunnel cannot carry: PPPoE or MPLS.
        NotIp = "not-ip",
        /// The tunnel carries IP packets, and this one has a VLAN tag, which would be lost.
        VlanTag = "vlan-tag",
        /// The frame ends inside its headers.
        Truncated = "truncated",
        /// A header contradicts itself.
        Malformed = "malformed",
        /// The frame ends before its IP length says.
        Short = "short",
        /// An IP length of zero in a frame that is no superframe.
        LengthZero = "length-zero",
        /// A superframe that is cut into IP fragments: that has to be done first.
        Superframe = "superframe",
        /// A superframe in a tunnel whose packets are numbered: it has to be cut first, because each
        /// of its packets needs a number (rule S43).
        SuperframeNumbered = "superframe-numbered",
        /// The packet would be longer than the lengths around it can say (rule T13, B1).
        TooLong = "too-long",
        /// The partial checksum does not lie in the packet, or not where the headers are, or at an
        /// odd place of what it covers (rule C3).
        ChecksumOutside = "checksum-outside",
        /// The packet may enter no more tunnels (RFC 2473 section 4.1.1).
        EncapsulationLimit = "encapsulation-limit",
        /// The packet has as many IP headers as can be cut (rule S4, B10).
        TooDeep = "too-deep",
    }
}

impl core::error::Error for Refusal {}

/// Counters of encapsulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EncapsulateStats {
    /// Frames put in, superframes counting as one.
    pub frames: u64,
    /// Packets put in: those that superframes are segmented into.
    pub packets: u64,
    /// Bytes of these frames, as far as the tunnel carries them.
    pub bytes: u64,
    /// Frames that were superframes.
    pub superframes: u64,
    /// Frames whose receiver completes a checksum (rule C52).
    pub remote_checksums: u64,
    /// Frames refused, by reason.
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
    /// Frames refused for this reason.
    #[must_use]
    pub const fn refused(&self, reason: Refusal) -> u64 {
        self.refused[reason.index()]
    }
}
