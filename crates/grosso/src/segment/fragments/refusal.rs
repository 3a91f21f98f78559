//! Reasons for which a packet is not fragmented.

/// Reason why a packet is not fragmented. It stays unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NoFragments {
    /// It fits the MTU.
    Whole,
    /// It is longer than the MTU and DF forbids fragments: its sender should be told the MTU, by ICMP type 3 code 4
    /// (rule S61).
    DontFragment {
        /// The MTU.
        mtu: u16,
    },
    /// The MTU leaves no room for 8 bytes of data, or for the headers that a first fragment must have: those of IPv6
    /// (rules S60, S62; RFC 7112), and those of TCP up to its flags (RFC 1858, RFC 3128).
    MtuTooSmall,
    /// It has no IP header.
    NotIp,
    /// It is an IPv6 fragment already.
    AlreadyFragment,
    /// It is a superframe, whose packets are cut first (rule S49).
    Superframe,
    /// Its headers are not together in the first slice.
    HeadersSplit,
    /// Its headers are longer than [`HEADER_BYTES_MAX`](super::super::HEADER_BYTES_MAX).
    HeaderTooLong,
    /// Bytes are missing that its IP header speaks of, or less than its own length.
    BytesMissing,
    /// It is longer than the fragments of one datagram can say (rule F13).
    TooLong,
    /// The checksum of its IPv4 header is wrong: fragments would have right ones, and nobody would see it again.
    Ipv4Checksum,
    /// Its partial checksum does not lie in the data that are cut (rule C3).
    ChecksumOutside,
}

impl NoFragments {
    /// A sentence for a person.
    #[must_use]
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Whole => "it fits the MTU",
            Self::DontFragment { .. } => "it is longer than the MTU and forbids fragments",
            Self::MtuTooSmall => "the MTU leaves no room for data behind its headers",
            Self::NotIp => "it has no IP header",
            Self::AlreadyFragment => "it is an IPv6 fragment already",
            Self::Superframe => "it is a superframe, whose packets are cut first",
            Self::HeadersSplit => "its headers are not in one piece",
            Self::HeaderTooLong => "its headers are longer than any that are cut",
            Self::BytesMissing => "bytes are missing that its header speaks of",
            Self::TooLong => "it is longer than an IP datagram can be",
            Self::Ipv4Checksum => "its IPv4 header checksum is wrong",
            Self::ChecksumOutside => "its partial checksum lies outside its data",
        }
    }
}

impl core::fmt::Display for NoFragments {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.sentence())
    }
}

impl core::error::Error for NoFragments {}
