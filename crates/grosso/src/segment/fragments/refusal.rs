//! Reasons why a packet is not fragmented.

/// Reason why a packet is not fragmented. The packet is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NoFragments {
    /// The packet fits into the MTU.
    Whole,
    /// The packet exceeds the MTU and has DF set. Report the MTU to its sender with ICMP type 3, code 4 (rule S61).
    DontFragment {
        /// MTU in bytes.
        mtu: u16,
    },
    /// The MTU leaves no room for 8 bytes of data, or for the headers that a first fragment must contain: all IPv6
    /// headers (rules S60, S62; RFC 7112), and the TCP header up to its flags (RFC 1858, RFC 3128).
    MtuTooSmall,
    /// The packet has no IP header.
    NotIp,
    /// The packet is already an IPv6 fragment.
    AlreadyFragment,
    /// The packet is a superframe, which must be segmented first (rule S49).
    Superframe,
    /// The first slice does not contain all headers.
    HeadersSplit,
    /// The headers are longer than [`HEADER_BYTES_MAX`](super::super::HEADER_BYTES_MAX).
    HeaderTooLong,
    /// The packet is shorter than its IP header, or than the length in that header.
    BytesMissing,
    /// The packet is longer than IP fragments can express (rule F13).
    TooLong,
    /// The IPv4 header checksum is wrong. The fragments would get valid checksums, which would hide the error.
    Ipv4Checksum,
    /// The partial checksum lies outside the fragmented data (rule C3).
    ChecksumOutside,
}

impl NoFragments {
    /// Returns a sentence that explains the reason to users.
    #[must_use]
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Whole => "the packet fits into the MTU",
            Self::DontFragment { .. } => "the packet exceeds the MTU, but DF forbids fragmentation",
            Self::MtuTooSmall => "the MTU leaves no room for data after the headers",
            Self::NotIp => "the packet has no IP header",
            Self::AlreadyFragment => "the packet is already an IPv6 fragment",
            Self::Superframe => "the frame is a superframe and must be segmented first",
            Self::HeadersSplit => "the headers are not contiguous",
            Self::HeaderTooLong => "the headers are longer than supported",
            Self::BytesMissing => "the packet is shorter than its IP header declares",
            Self::TooLong => "the packet exceeds the maximum length of an IP datagram",
            Self::Ipv4Checksum => "the IPv4 header checksum is wrong",
            Self::ChecksumOutside => "the partial checksum is outside the data to be fragmented",
        }
    }
}

impl core::fmt::Display for NoFragments {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.sentence())
    }
}

impl core::error::Error for NoFragments {}
