//! How fragments are joined, as data.

/// The rules of a reassembler and its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rules {
    /// What becomes of the fragments of a datagram.
    pub mode: Mode,
    /// What two fragments that share bytes are taken for.
    pub overlap: Overlap,
    /// Whether the transport checksum of a whole datagram is verified when no device did.
    pub verify: bool,
    /// The limits.
    pub limits: Limits,
}

/// What becomes of the fragments of a datagram (rule F24, P38).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Their data are copied together and their buffers given back at once: for local delivery, and
    /// for receivers that have few buffers.
    Coalesce,
    /// Their buffers are kept, and the datagram is a view of them: for forwarding, because the very
    /// fragments that came can be sent again.
    KeepGeometry,
    /// They leave as they came, as soon as the first has told the ports of them all: for a middlebox
    /// that wants to know the flow of each and no more.
    Virtual,
}

/// What two fragments of one datagram that share bytes are taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Overlap {
    /// The same fragment again, bytes and all, is ignored. Everything else kills the datagram, and
    /// later fragments of it die as well (RFC 5722 section 4, P26, P27). Whatever the order.
    Drop,
    /// As Linux: what lies inside a run of bytes that came in order is ignored unread, everything
    /// else kills the datagram but not its key (rules F14, F15). A misaligned IPv4 fragment is
    /// rounded down (rule F10).
    Linux,
    /// The bytes that came first stay. For analysis, with [`Mode::Coalesce`] only.
    First,
    /// The bytes that came last stay. For analysis, with [`Mode::Coalesce`] only.
    Last,
}

/// Bounds of memory, count and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Incomplete datagrams at once.
    pub datagrams: usize,
    /// Keys of killed datagrams remembered at once.
    pub tombstones: usize,
    /// Fragments of one datagram.
    pub fragments: u16,
    /// Memory of everything held, in bytes: whole buffers and what is kept beside them (rule F2,
    /// P33).
    pub memory_bytes: usize,
    /// As much of it as one source may take, in bytes: an IPv4 address, or an IPv6 prefix of 64
    /// bits. Some sources share this by chance.
    pub source_bytes: usize,
    /// Memory that a buffer takes at least, in bytes, however little of it is filled: the frame size
    /// of a ring.
    pub buffer_bytes: usize,
    /// How long an IPv4 datagram may be incomplete, in nanoseconds from its first arrival (rule F3).
    pub ipv4_ns: u64,
    /// The same for IPv6.
    pub ipv6_ns: u64,
    /// Fragments of one IPv4 source that may come between two of one datagram; more mean that its
    /// identification was used again (rule F4). 0 turns it off.
    pub distance: u32,
}

impl Rules {
    /// The rules of Linux where they are safe, and stricter ones where they are not.
    #[must_use]
    pub fn new(mode: Mode) -> Self {
        Self { mode, overlap: Overlap::Drop, verify: false, limits: Limits::default() }
    }
}

impl Default for Limits {
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
