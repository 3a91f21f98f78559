//! Profiles: descriptions of receive-offload implementations as data.

mod batch;
mod bypass;
pub(crate) mod coalesce_options;
mod hold;
mod limits;
mod reorder;
mod rules;

use alloc::{borrow::Cow, vec::Vec};

use grosso_wire::{ethernet, tcp};

pub use self::{
    batch::Batch,
    bypass::Bypass,
    hold::Hold,
    limits::Limits,
    reorder::{Level, Reorder},
    rules::{
        Acknowledgments, AtLimit, FixedIdentification, FullTable, Options, Padding, Push, Refused,
        Rules, Sizes, TrainChecksum, Vary, ZeroEcho,
    },
};

use crate::flow::{BucketChoice, TableShape};

/// Rules and limits of one receive-offload implementation.
///
/// ```
/// use grosso::Profile;
///
/// let profile = Profile::linux();
/// assert!(profile.rules.is_invertible());
/// assert!(Profile::all().iter().any(|other| other.name == "freebsd"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Profile {
    /// Name of the profile in reports.
    pub name: Cow<'static, str>,
    /// Differences permitted between the TCP packets of a train.
    pub rules: Rules,
    /// Whether TCP packets are merged.
    pub tcp: bool,
    /// Whether UDP datagrams of equal size are merged, as with `rx-udp-gro-forwarding` or `UDP_GRO` (rule U3).
    pub udp: bool,
    /// Whether packets with IPv6 extension headers are merged (rule G21).
    pub extension_headers: bool,
    /// Maximum number of tunnel levels around a packet. IP-in-IP counts as one level (rule T1).
    pub tunnels_max: u8,
    /// Method for choosing how long a train is held, at most [`Limits::hold_ns`].
    pub hold: Hold,
    /// Thresholds for bypassing flows that seldom merge (P48). If this is `None`, no flow is bypassed.
    pub bypass: Option<Bypass>,
    /// Reordering repair for TCP segments.
    pub reorder: Reorder,
    /// Shape of the flow table.
    pub table: TableShape,
    /// Order in which the packets of a poll are merged.
    pub batch: Batch,
    /// Limits on a train and on the memory of the coalescer.
    pub limits: Limits,
}

impl Profile {
    /// Returns the rules of Linux 7.2, with a flow table that is large enough for many flows.
    ///
    /// The profile deviates from Linux where Linux would violate a guarantee of this engine; see `docs/rules.md`. UDP
    /// is merged, as on a forwarding host.
    #[must_use]
    pub fn linux() -> Self {
        Self {
            name: Cow::Borrowed("linux"),
            rules: Rules::INVERTIBLE,
            tcp: true,
            udp: true,
            extension_headers: true,
            tunnels_max: 1,
            hold: Hold::Fixed,
            bypass: None,
            reorder: Reorder::OFF,
            table: TableShape { buckets: 1024, choice: BucketChoice::Seeded },
            batch: Batch::AsItCame,
            limits: Limits {
                flows: 4096,
                parts: 65536,
                size_bytes: 65536,
                payload_bytes: Limits::SIZE_BYTES_CEILING,
                tcp_segments: u16::MAX,
                udp_segments: 64,
                hold_ns: 0,
                full_poll_ns: JIFFY_NS,
            },
        }
    }

    /// Returns [`Profile::linux`] with Linux's flow table: 8 buckets of 8 flows, indexed by the hash from the device
    /// (rule G2).
    #[must_use]
    pub fn linux_8x8() -> Self {
        let mut profile = Self::linux();
        profile.name = Cow::Borrowed("linux-8x8");
        profile.table = TableShape { buckets: 8, choice: BucketChoice::Device };
        profile.limits.flows = 64;
        profile
    }

    /// Returns [`Profile::linux_8x8`] with the rules of Linux 6.12 where the engine supports them. In particular, a
    /// fixed identification requires DF (rule G14a).
    #[must_use]
    pub fn linux_6_12() -> Self {
        let mut profile = Self::linux_8x8();
        profile.name = Cow::Borrowed("linux-6.12");
        profile.rules.fixed_identification = FixedIdentification::DontFragment;
        profile
    }

    /// Returns the rules of the generic LRO in Linux 2.6.24 to 4.4 (rules L10 to L15), for a device with an MTU of 1500
    /// bytes: later acknowledgments, windows and timestamp echoes replace earlier ones, packets of any size are merged,
    /// and a packet that does not fit into its train is delivered alone.
    #[must_use]
    pub fn inet_lro() -> Self {
        let mut profile = Self::lossy("inet-lro");
        let rules = &mut profile.rules;
        rules.timestamp_value = Vary::First;
        rules.zero_echo = ZeroEcho::Alone;
        rules.flags_alone = CONGESTION_AND_FINISH;
        rules.congestion_alone = true;
        rules.refused = Refused::Leaves;
        rules.full = FullTable::Leaves;
        rules.at_limit = AtLimit::Ends;
        rules.checksum = TrainChecksum::Complete;
        profile.limits.flows = 8;
        // A train ends at 64 packets, or when there is no room for another full-sized packet (rule L15).
        profile.limits.size_bytes = 65536 - ETHERNET_MTU;
        profile.limits.tcp_segments = 64;
        profile
    }

    /// Returns [`Profile::inet_lro`] as submitted for review in 2007, for a receiver with this MTU in bytes. A train
    /// holds as many packets as would fit at full size, even if they are short (P2), and at most that kernel's
    /// `MAX_SKB_FRAGS`. The original created superframes without a valid checksum; here they have a partial checksum.
    #[must_use]
    pub fn inet_lro_2007(mtu: u16) -> Self {
        let mut profile = Self::inet_lro();
        profile.name = Cow::Borrowed("inet-lro-2007");
        profile.rules.checksum = TrainChecksum::Partial;
        profile.limits.size_bytes = 65536;
        profile.limits.tcp_segments = (u16::MAX / mtu.max(1)).clamp(1, SOCKET_BUFFER_PARTS);
        profile
    }

    /// Returns the rules of the LRO in the myri10ge driver of 2007 (`mxge_lro.c` in FreeBSD), from which FreeBSD's LRO
    /// was derived. The rules are for a device with an MTU of 1500 bytes.
    #[must_use]
    pub fn myri10ge() -> Self {
        let mut profile = Self::lossy("myri10ge");
        let rules = &mut profile.rules;
        rules.flags_alone = CONGESTION_AND_FINISH;
        rules.acknowledgments = Acknowledgments::Newer;
        rules.refused = Refused::Leaves;
        rules.full = FullTable::Leaves;
        rules.at_limit = AtLimit::Ends;
        rules.padding = Padding::Trim;
        rules.zero_echo = ZeroEcho::Starts;
        rules.checksum = TrainChecksum::Complete;
        profile.limits.flows = 8;
        // The original driver included the Ethernet header in the length.
        profile.limits.size_bytes = 65536 - ETHERNET_MTU - ethernet::HEADER_LEN as u32;
        profile
    }

    /// Returns the rules of FreeBSD's `tcp_lro.c` from 2008 to 2012, which makes [`Profile::myri10ge`] available to all
    /// drivers.
    #[must_use]
    pub fn freebsd_2011() -> Self {
        let mut profile = Self::myri10ge();
        profile.name = Cow::Borrowed("freebsd-2011");
        profile
    }

    /// Returns the rules of FreeBSD's current LRO, which sorts the packets of a poll by flow. It also merges pure
    /// acknowledgments that only change the window.
    #[must_use]
    pub fn freebsd() -> Self {
        let mut profile = Self::lossy("freebsd");
        profile.rules.flags_alone = CONGESTION_AND_FINISH;
        profile.rules.acknowledgments = Acknowledgments::Join;
        profile.rules.padding = Padding::Trim;
        profile.rules.checksum = TrainChecksum::Complete;
        profile.limits.flows = 8;
        // Both limits are exclusive in the original code.
        profile.limits.payload_bytes = 65535 - 255 - 1;
        profile.limits.tcp_segments = u16::MAX - 1;
        profile.batch = Batch::ByFlow { packets: 1024 };
        profile
    }

    /// Returns the rules of receive side coalescing in Intel's 82599 with receive buffers of `buffer_bytes` bytes.
    /// There are 32 flows, and pure acknowledgments are not merged. A superframe has at most 16 buffers, 8 if they are
    /// larger than 4096 bytes, or 4 if they are larger than 8192 bytes. Trains end after the interrupt throttling
    /// interval of 16 us.
    #[must_use]
    pub fn rsc_82599(buffer_bytes: u32) -> Self {
        let mut profile = Self::lossy("rsc-82599");
        profile.rules.flags_alone = CONGESTION_AND_FINISH;
        profile.rules.congestion_alone = true;
        profile.rules.push = Push::Ends;
        profile.limits.flows = 32;
        let descriptors = match buffer_bytes {
            0..=4096 => 16,
            4097..=8192 => 8,
            _ => 4,
        };
        profile.limits.size_bytes = buffer_bytes.saturating_mul(descriptors).clamp(1, 65535) + 1;
        profile.limits.hold_ns = 16_000;
        profile
    }

    /// Returns the rules that Windows requires of drivers for receive segment coalescing (NDIS 6.30).
    #[must_use]
    pub fn ndis_rsc() -> Self {
        let mut profile = Self::lossy("ndis-rsc");
        profile.rules.flags_alone = tcp::FIN as u8;
        profile.rules.acknowledgments = Acknowledgments::WindowUpdates;
        profile
    }

    /// Returns the rules that Windows requires of drivers for UDP receive offload (NDIS 6.89): datagrams of equal size
    /// outside tunnels are merged up to the maximum length of an IP packet, and TCP is not merged.
    #[must_use]
    pub fn ndis_uro() -> Self {
        let mut profile = Self::linux();
        profile.name = Cow::Borrowed("ndis-uro");
        profile.tcp = false;
        profile.extension_headers = false;
        profile.tunnels_max = 0;
        profile.limits.udp_segments = u16::MAX;
        profile.limits.full_poll_ns = 0;
        profile
    }

    /// Returns the TCP rules of DPDK's GRO library, which ignores TTL, DSCP, windows and sizes and keeps the headers of
    /// the first packet.
    #[must_use]
    pub fn dpdk() -> Self {
        let mut profile = Self::linux();
        profile.name = Cow::Borrowed("dpdk");
        profile.udp = false;
        profile.extension_headers = false;
        profile.rules = Rules {
            differentiated_services: Vary::First,
            time_to_live: Vary::First,
            identification: Vary::First,
            window: Vary::First,
            sizes: Sizes::Any,
            flags_alone: (tcp::ECE | tcp::CWR) as u8,
            full: FullTable::Leaves,
            ..Rules::INVERTIBLE
        };
        profile.reorder.level = Level::Batch;
        profile.limits.flows = 128;
        profile.limits.full_poll_ns = 0;
        profile
    }

    /// Returns the rules that wireguard-go uses for packets to a TUN device: UDP is merged, and TCP is merged
    /// regardless of identifications, flow labels and windows.
    #[must_use]
    pub fn wireguard() -> Self {
        let mut profile = Self::linux();
        profile.name = Cow::Borrowed("wireguard");
        profile.extension_headers = false;
        profile.tunnels_max = 0;
        profile.rules = Rules {
            identification: Vary::First,
            flow_label: Vary::First,
            window: Vary::First,
            flags_alone: CONGESTION_AND_FINISH,
            ..Rules::INVERTIBLE
        };
        profile.reorder.level = Level::Batch;
        profile.limits.flows = 128;
        profile.limits.full_poll_ns = 0;
        profile
    }

    /// Returns the rules common to all lossy profiles.
    fn lossy(name: &'static str) -> Self {
        let mut profile = Self::linux();
        profile.name = Cow::Borrowed(name);
        profile.udp = false;
        profile.extension_headers = false;
        profile.tunnels_max = 0;
        profile.rules = Rules {
            differentiated_services: Vary::First,
            flow_label: Vary::First,
            time_to_live: Vary::First,
            dont_fragment: Vary::First,
            identification: Vary::First,
            acknowledgment: Vary::Latest,
            window: Vary::Latest,
            timestamp_value: Vary::Latest,
            timestamp_echo: Vary::Latest,
            options: Options::TimestampOnly,
            sizes: Sizes::Any,
            push: Push::Joins,
            ..Rules::INVERTIBLE
        };
        profile.limits.full_poll_ns = 0;
        profile
    }

    /// Returns whether the profile uses measured round-trip times, either for hold times or for the wait for missing
    /// packets.
    #[must_use]
    pub fn wants_round_trips(&self) -> bool {
        self.hold == Hold::Controlled || self.reorder.is_adaptive()
    }

    /// Returns whether trains are held for longer than their normal hold time after polls that used their whole budget
    /// ([`Limits::full_poll_ns`]).
    #[must_use]
    pub fn outlasts_full_polls(&self) -> bool {
        self.hold == Hold::Fixed && self.limits.full_poll_ns > self.limits.hold_ns
    }

    /// Returns whether the profile needs more than the exact rules. It does if it has other rules, repairs reordering,
    /// bypasses flows, or adapts the hold time.
    pub(crate) fn is_more_than_laws(&self) -> bool {
        let repairs = self.reorder.level != Level::Off;
        let is_fixed = self.hold == Hold::Fixed && self.bypass.is_none();
        self.rules != Rules::INVERTIBLE || !is_fixed || repairs
    }

    /// Returns the built-in profile with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|profile| profile.name == name)
    }

    /// Returns every built-in profile, starting with the default. `inet-lro-2007` is for an MTU of 9000 bytes, and
    /// `rsc-82599` has buffers of 2048 bytes.
    #[must_use]
    pub fn all() -> Vec<Self> {
        BUILT_IN.iter().map(|(profile, _)| profile()).collect()
    }

    /// Returns a description of the built-in profile with this name, in at most 53 columns; `None` for other names.
    #[must_use]
    pub fn description(name: &str) -> Option<&'static str> {
        BUILT_IN.iter().find(|(profile, _)| profile().name == name).map(|(_, about)| *about)
    }
}

impl Default for Profile {
    fn default() -> Self {
        Self::linux()
    }
}

/// Constructor and description of a built-in profile.
type BuiltIn = (fn() -> Profile, &'static str);

/// Built-in profiles, the default first, each with a description of at most 53 columns.
const BUILT_IN: &[BuiltIn] = &[
    (Profile::linux, "GRO of Linux 7.2, with a larger flow table (default)"),
    (Profile::linux_8x8, "GRO of Linux 7.2, with its table of 8 x 8 flows"),
    (Profile::linux_6_12, "GRO of Linux 6.12: linux-8x8 with an older IP ID rule"),
    (Profile::inet_lro, "generic LRO of Linux 2.6.24 to 4.4"),
    (|| Profile::inet_lro_2007(9000), "inet-lro as submitted for review in 2007"),
    (Profile::myri10ge, "LRO of the driver for Myricom's 10 Gbit/s NICs"),
    (Profile::freebsd_2011, "tcp_lro of FreeBSD from 2008 to 2012"),
    (Profile::freebsd, "tcp_lro of FreeBSD today, with sorted batches"),
    (|| Profile::rsc_82599(2048), "receive side coalescing of Intel's 82599 NICs"),
    (Profile::ndis_rsc, "receive segment coalescing as specified for Windows"),
    (Profile::ndis_uro, "UDP receive offload as specified for Windows"),
    (Profile::dpdk, "TCP in DPDK's GRO library"),
    (Profile::wireguard, "coalescing in wireguard-go for its TUN device"),
];

/// Length of a Linux jiffy at 1000 Hz, in nanoseconds. At lower rates, Linux keeps no trains across polls.
const JIFFY_NS: u64 = 1_000_000;
/// MTU of Ethernet without jumbo frames.
const ETHERNET_MTU: u32 = 1500;
/// FIN and the congestion-control flags, as the low byte of the TCP flags.
const CONGESTION_AND_FINISH: u8 = (tcp::FIN | tcp::ECE | tcp::CWR) as u8;
/// Maximum number of fragments in a 2007 socket buffer with 4 KiB pages (`MAX_SKB_FRAGS`).
const SOCKET_BUFFER_PARTS: u16 = 18;
