//! Rules and limits of reassembly, as data.

/// The rules of a reassembler and its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReassemblyRules {
    /// Treatment of the fragments of a datagram.
    pub mode: ReassemblyMode,
    /// Treatment of two fragments that share bytes.
    pub overlap: Overlap,
    /// Whether the transport checksum of a whole datagram is verified if no device did so.
    pub verify: bool,
    /// Whether fragments inside a tunnel are joined too. Who ends a tunnel joins the fragments of the tunnel's own
    /// packets only: those inside are for the hosts to which they go.
    pub in_tunnels: bool,
    /// The limits.
    pub limits: ReassemblyLimits,
}

/// Treatment of the fragments of a datagram (rule F24, P38).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReassemblyMode {
    /// Their data are copied together and their buffers returned at once: for local delivery, and for receivers with
    /// few buffers.
    Coalesce,
    /// Their buffers are kept, and the datagram is a view of them: for forwarding, because the original fragments can
    /// be retransmitted.
    KeepGeometry,
    /// They leave unchanged, as soon as the first one has supplied the ports of them all: for a middlebox that needs
    /// only the flow of each.
    Virtual,
}

/// Treatment of two fragments of one datagram that share bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Overlap {
    /// An identical fragment is ignored. Any other overlap discards the datagram, and later fragments of it are
    /// discarded as well (RFC 5722 section 4, P26, P27), whatever the order.
    Drop,
    /// As Linux: a fragment inside a run of bytes that arrived in order is ignored unread, any other overlap discards
    /// the datagram but not its key (rules F14, F15). A misaligned IPv4 fragment is rounded down (rule F10), and TCP
    /// fragments that end or start inside the TCP header are joined, which RFC 1858 and RFC 3128 advise against.
    Linux,
    /// The bytes that arrived first are kept. For analysis, with [`ReassemblyMode::Coalesce`] only.
    First,
    /// The bytes that arrived last are kept. For analysis, with [`ReassemblyMode::Coalesce`] only.
    Last,
}

/// Bounds of memory, count and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReassemblyLimits {
    /// Incomplete datagrams at once; 0 counts as 1.
    pub datagrams: usize,
    /// Keys of killed datagrams remembered at once.
    pub tombstones: usize,
    /// Fragments of one datagram.
    pub fragments: u16,
    /// Memory of everything held, in bytes: whole buffers and the state beside them (rule F2, P33).
    pub memory_bytes: usize,
    /// Part of it that one source may take, in bytes. A source is an IPv4 address or an IPv6 prefix of 64 bits; some
    /// sources share this bound by chance.
    pub source_bytes: usize,
    /// Least memory that a buffer counts as, in bytes, however little of it is filled: the frame size of a ring.
    pub buffer_bytes: usize,
    /// Time that an IPv4 datagram may be incomplete, in nanoseconds from its first arrival (rule F3).
    pub ipv4_ns: u64,
    /// The same for IPv6.
    pub ipv6_ns: u64,
    /// Fragments of one IPv4 source that may arrive between two of one datagram; more mean that its identification was
    /// used again (rule F4). 0 disables the check.
    pub distance: u32,
}

impl ReassemblyRules {
    /// Linux's rules where they are safe, and stricter ones where they are not.
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
            // 64 KB through the smallest link that IPv4 allows, of 68 bytes, behind its longest header are 8185.
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

/// [`Overlap::First`] and [`Overlap::Last`] mix the bytes of fragments, which then cannot leave as
/// they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverlapNeedsCoalesce;

impl core::fmt::Display for OverlapNeedsCoalesce {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("overlapping fragments can be mixed only in the mode that copies their data")
    }
}

impl core::error::Error for OverlapNeedsCoalesce {}
