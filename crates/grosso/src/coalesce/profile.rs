//! What a receive-offload implementation joins, as data.

/// The rules that differ between receive-offload implementations, and their limits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Profile {
    /// The name under which reports show it.
    pub name: &'static str,
    /// Whether UDP datagrams of equal size are joined, as `rx-udp-gro-forwarding` does or a socket
    /// with `UDP_GRO` asks for (rule U3).
    pub udp: bool,
    /// How many tunnels a packet may be inside of, at most; IP in IP counts as one (rule T1).
    pub tunnels_max: u8,
    /// The flow table.
    pub table: TableShape,
    /// The limits of one train.
    pub limits: Limits,
}

/// How the flow table is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableShape {
    /// Buckets of eight ways each, a power of two (other values are raised to the next).
    pub buckets: usize,
    /// How a bucket is chosen.
    pub choice: BucketChoice,
}

/// How a packet's bucket is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketChoice {
    /// By the engine's own seeded hash of the flow.
    Seeded,
    /// By the low bits of the device's hash, or bucket 0 when there is none, as Linux does (rules
    /// G2, G3). For comparison only: a few flows without a device hash fill the one bucket.
    Device,
}

/// Bounds of memory, size and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Trains held at once.
    pub flows: usize,
    /// Buffers held at once, over all trains.
    pub parts: usize,
    /// Bytes of a superframe from its first IP header on: 65536 means at most 65535 (rule G60).
    pub size_bytes: u32,
    /// Packets in one TCP train.
    pub tcp_segments: u16,
    /// Packets in one UDP train (rule U13).
    pub udp_segments: u16,
    /// How long a train may be held across polls, in nanoseconds from its first packet (rule G74);
    /// 0 ends every train with its poll.
    pub hold_ns: u64,
}

impl Profile {
    /// The rules of Linux 7.2 as `linux-offloads` states them, with a flow table that many flows do
    /// not exhaust.
    ///
    /// It differs where Linux would break a promise of this engine: see `docs/rules.md`. UDP is
    /// joined, as on a host that forwards it.
    #[must_use]
    pub fn linux() -> Self {
        Self {
            name: "linux",
            udp: true,
            tunnels_max: 1,
            table: TableShape { buckets: 1024, choice: BucketChoice::Seeded },
            limits: Limits {
                flows: 4096,
                parts: 65536,
                size_bytes: 65536,
                tcp_segments: u16::MAX,
                udp_segments: 64,
                hold_ns: 0,
            },
        }
    }

    /// As [`Profile::linux`], with Linux's own table: 8 buckets of 8, chosen by the device's hash
    /// (rule G2).
    #[must_use]
    pub fn linux_8x8() -> Self {
        let mut profile = Self::linux();
        profile.name = "linux-8x8";
        profile.table = TableShape { buckets: 8, choice: BucketChoice::Device };
        profile.limits.flows = 64;
        profile
    }

    /// The built-in profile of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|profile| profile.name == name)
    }

    /// Every built-in profile, the default first.
    #[must_use]
    pub fn all() -> [Self; 2] {
        [Self::linux(), Self::linux_8x8()]
    }
}

impl Default for Profile {
    fn default() -> Self {
        Self::linux()
    }
}

impl Limits {
    /// The largest size limit that Linux allows to be set: 8 x 65535 (rule G60).
    pub const SIZE_BYTES_CEILING: u32 = 524_280;
}
