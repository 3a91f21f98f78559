//! Rules and limits of reassembly.

/// Rules and limits of a reassembler.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReassemblyRules {
    /// Processing mode.
    pub mode: ReassemblyMode,
    /// Treatment of overlapping fragments.
    pub overlap: Overlap,
    /// Whether to verify the transport checksum of a complete datagram if no device has verified it.
    pub verify: bool,
    /// Whether fragments inside tunnels are reassembled too. A tunnel endpoint should reassemble only fragments of
    /// outer packets; fragments inside the tunnel are for their destination hosts to reassemble.
    pub in_tunnels: bool,
    /// Limits on memory, count and time.
    pub limits: ReassemblyLimits,
}

/// Processing mode (rule F24, P38).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReassemblyMode {
    /// Copies the data into one buffer and returns the original buffers immediately. This mode is suitable for local
    /// delivery, and for receivers with few buffers.
    Coalesce,
    /// Keeps the buffers and delivers the datagram as a view of them. This mode is suitable for forwarding, because the
    /// original fragments can be transmitted.
    KeepGeometry,
    /// Delivers fragments unchanged, with their flow, once the first fragment has supplied the ports. This mode is
    /// suitable for a middlebox that needs only the flow.
    Virtual,
}

/// Treatment of overlapping fragments of one datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Overlap {
    /// Ignores a duplicate fragment. After any other overlap, the datagram and its later fragments are discarded, in
    /// whatever order they arrive (RFC 5722 section 4, P26, P27).
    Drop,
    /// Behaves like Linux. A fragment inside a run of bytes that arrived in order is ignored without a comparison; any
    /// other overlap discards the datagram but not later fragments (rules F14, F15). A misaligned IPv4 fragment is
    /// rounded down to a multiple of 8 bytes (rule F10). TCP fragments that end or start inside the TCP header are
    /// joined, which RFC 1858 and RFC 3128 advise against.
    Linux,
    /// Keeps the bytes that arrived first. This is meant for analysis and requires [`ReassemblyMode::Coalesce`].
    First,
    /// Keeps the bytes that arrived last. This is meant for analysis and requires [`ReassemblyMode::Coalesce`].
    Last,
}

/// Limits on memory, count and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReassemblyLimits {
    /// Maximum number of incomplete datagrams; 0 counts as 1.
    pub datagrams: usize,
    /// Maximum number of discarded datagrams whose later fragments are recognized.
    pub tombstones: usize,
    /// Maximum number of fragments per datagram.
    pub fragments: u16,
    /// Maximum memory of all held data in bytes, including unused parts of buffers and bookkeeping (rule F2, P33).
    pub memory_bytes: usize,
    /// Maximum memory per source in bytes. A source is an IPv4 address or an IPv6 /64 prefix; sources whose hashes
    /// collide share this limit.
    pub source_bytes: usize,
    /// Minimum memory in bytes that each buffer counts as, for example the frame size of a ring.
    pub buffer_bytes: usize,
    /// Timeout in nanoseconds for an incomplete IPv4 datagram, counted from its first fragment (rule F3).
    pub ipv4_ns: u64,
    /// Timeout in nanoseconds for an incomplete IPv6 datagram, counted from its first fragment (rule F3).
    pub ipv6_ns: u64,
    /// Maximum number of fragments that an IPv4 source may send between two fragments of a datagram. If it sends more,
    /// the datagram's identification is assumed to have been reused (rule F4). 0 disables the check.
    pub distance: u32,
}

impl ReassemblyRules {
    /// Returns Linux's rules, or stricter ones where Linux's are unsafe.
    #[must_use]
    pub fn new(mode: ReassemblyMode) -> Self {
        Self {
            mode,
            overlap: Overlap::Drop,
            verify: false,
            in_tunnels: true,
            limits: ReassemblyLimits::default(),
        }
    }
}

impl Default for ReassemblyLimits {
    fn default() -> Self {
        Self {
            datagrams: 4096,
            tombstones: 1024,
            // A 64 KB datagram with the longest IP header has 8185 fragments at the smallest MTU that IPv4 allows (68
            // bytes).
            fragments: 8192,
            memory_bytes: 4 << 20,
            source_bytes: 2 << 20,
            buffer_bytes: 0,
            ipv4_ns: 30_000_000_000,
            ipv6_ns: 60_000_000_000,
            distance: 64,
        }
    }
}

/// Error: [`Overlap::First`] and [`Overlap::Last`] mix bytes from several fragments, so the fragments could not be
/// delivered unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverlapNeedsCoalesce;

impl core::fmt::Display for OverlapNeedsCoalesce {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("overlapping fragments can be combined only in the mode that copies fragments")
    }
}

impl core::error::Error for OverlapNeedsCoalesce {}
