//! Profiles: implementations of receive offload, as data.

mod batch;
mod bypass;
mod hold;
mod limits;
mod reorder;
mod rules;

use alloc::{borrow::Cow, vec, vec::Vec};

use grosso_wire::tcp;

pub use self::{
    batch::Batch,
    bypass::Bypass,
    hold::Hold,
    limits::Limits,
    reorder::{Level, Reorder},
    rules::{
        Acknowledgments, FixedIdentification, FullTable, Options, Push, Refused, Rules, Sizes, Vary,
    },
};

use crate::flow::{BucketChoice, TableShape};

/// The rules that differ between receive-offload implementations, and their limits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Profile {
    /// The name under which reports show it.
    pub name: Cow<'static, str>,
    /// Differences that TCP packets of a train may have.
    pub rules: Rules,
    /// Whether TCP is joined.
    pub tcp: bool,
    /// Whether UDP datagrams of equal size are joined, as `rx-udp-gro-forwarding` does or a socket
    /// with `UDP_GRO` asks for (rule U3).
    pub udp: bool,
    /// Whether packets with IPv6 extension headers are joined (rule G21).
    pub extension_headers: bool,
    /// Most tunnels that a packet may be inside of; IP in IP counts as one (rule T1).
    pub tunnels_max: u8,
    /// Time for which a train is held, within [`Limits::hold_ns`].
    pub hold: Hold,
    /// Whether and when flows are left alone that are seldom joined (P48).
    pub bypass: Option<Bypass>,
    /// Repair of reordered TCP.
    pub reorder: Reorder,
    /// The flow table.
    pub table: TableShape,
    /// In which order the packets of a poll are joined.
    pub batch: Batch,
    /// The limits of one train.
    pub limits: Limits,
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
                tcp_segments: u16::MAX,
                udp_segments: 64,
                hold_ns: 0,
                full_poll_ns: JIFFY_NS,
            },
        }
    }

    /// As [`Profile::linux`], with Linux's own table: 8 buckets of 8, chosen by the device's hash
    /// (rule G2).
    #[must_use]
    pub fn linux_8x8() -> Self {
        let mut profile = Self::linux();
        profile.name = Cow::Borrowed("linux-8x8");
        profile.table = TableShape { buckets: 8, choice: BucketChoice::Device };
        profile.limits.flows = 64;
        profile
    }

    /// As [`Profile::linux_8x8`], with the rules of Linux 6.12 as far as they are the engine's: an identification
    /// that stays needs DF (rule G14a).
    #[must_use]
    pub fn linux_6_12() -> Self {
        let mut profile = Self::linux_8x8();
        profile.name = Cow::Borrowed("linux-6.12");
        profile.rules.fixed_identification = FixedIdentification::DontFragment;
        profile
    }

    /// The generic LRO of Linux 2.6.24 to 4.4 (rules L10 to L15): later acknowledgments, windows and echoes overwrite
    /// earlier ones, packets of any size join, and a packet that does not fit leaves alone.
    #[must_use]
    pub fn inet_lro() -> Self {
        let mut profile = Self::lossy("inet-lro");
        profile.rules.timestamp_value = Vary::First;
        profile.rules.flags_alone = CONGESTION_AND_FINISH;
        profile.rules.congestion_alone = true;
        profile.rules.refused = Refused::Leaves;
        profile.rules.full = FullTable::Leaves;
        profile.limits.flows = 8;
        // Bytes and count together, with room for one more packet (the review's sixth point).
        profile.limits.size_bytes = 65536 - 1500;
        profile.limits.tcp_segments = 64;
        profile
    }

    /// [`Profile::inet_lro`] as it was sent for review in 2007, at a receiver with this MTU in bytes:
    /// as many packets as full ones would fit, however short they are (P2), and no more than a socket buffer of its
    /// time had places for parts (`MAX_SKB_FRAGS`).
    #[must_use]
    pub fn inet_lro_2007(mtu: u16) -> Self {
        let mut profile = Self::inet_lro();
        profile.name = Cow::Borrowed("inet-lro-2007");
        profile.limits.size_bytes = 65536;
        profile.limits.tcp_segments = (u16::MAX / mtu.max(1)).clamp(1, SOCKET_BUFFER_PARTS);
        profile
    }

    /// The LRO of FreeBSD: acknowledgments without data join as well, if they say something new.
    #[must_use]
    pub fn freebsd() -> Self {
        let mut profile = Self::lossy("freebsd");
        profile.rules.flags_alone = CONGESTION_AND_FINISH;
        profile.rules.acknowledgments = Acknowledgments::Join;
        profile.limits.flows = 8;
        profile.limits.size_bytes = 65536 - 255;
        profile.batch = Batch::ByFlow { packets: 1024 };
        profile
    }

    /// The myri10ge driver's own LRO, of which FreeBSD's came: data only.
    #[must_use]
    pub fn myri10ge() -> Self {
        let mut profile = Self::freebsd();
        profile.name = Cow::Borrowed("myri10ge");
        profile.rules.acknowledgments = Acknowledgments::Alone;
        profile.rules.full = FullTable::Leaves;
        profile.batch = Batch::AsItCame;
        profile
    }

    /// The receive side coalescing of Intel's 82599 with receive buffers of this many bytes: 32 flows, no
    /// acknowledgments without data, and superframes of this many buffers as it has descriptors for: 16, 8 of more than
    /// 4096 bytes, 4 of more than 8192. Its trains end with the interrupt throttle of 16 microseconds.
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

    /// The receive segment coalescing that Windows asks of drivers (NDIS 6.30).
    #[must_use]
    pub fn ndis_rsc() -> Self {
        let mut profile = Self::lossy("ndis-rsc");
        profile.rules.flags_alone = tcp::FIN as u8;
        profile.rules.acknowledgments = Acknowledgments::WindowUpdates;
        profile
    }

    /// The UDP receive offload that Windows asks of drivers (NDIS 6.89): datagrams of equal size outside of tunnels,
    /// as many as an IP packet holds, and no TCP.
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

    /// The TCP part of DPDK's GRO library: TTL, DSCP and windows are not compared, sizes neither, and the first
    /// packet's header stays.
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

    /// The rules of wireguard-go on its way into a TUN device: TCP whose identifications, flow labels and windows are
    /// not compared, and UDP.
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

    /// Rules that the lossy ones have in common.
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

    /// Whether how long it holds trains, or waits for what is missing, follows the round trips of connections.
    #[must_use]
    pub fn wants_round_trips(&self) -> bool {
        self.hold == Hold::Controlled || self.reorder.is_adaptive()
    }

    /// Whether trains go on behind polls that took as many packets as they may ([`Limits::full_poll_ns`]), longer than
    /// they are held anyway.
    #[must_use]
    pub fn outlasts_full_polls(&self) -> bool {
        self.hold == Hold::Fixed && self.limits.full_poll_ns > self.limits.hold_ns
    }

    /// Whether it asks for more of one packet than the exact laws do.
    pub(super) fn is_more_than_laws(&self) -> bool {
        let repairs = self.reorder.level != Level::Off;
        let is_fixed = self.hold == Hold::Fixed && self.bypass.is_none();
        self.rules != Rules::INVERTIBLE || !is_fixed || repairs
    }

    /// The built-in profile of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|profile| profile.name == name)
    }

    /// Every built-in profile, the default first; `inet-lro-2007` at a receiver whose MTU is 9000, `rsc-82599` with
    /// buffers of 2048 bytes.
    #[must_use]
    pub fn all() -> Vec<Self> {
        vec![
            Self::linux(),
            Self::linux_8x8(),
            Self::linux_6_12(),
            Self::inet_lro(),
            Self::inet_lro_2007(9000),
            Self::myri10ge(),
            Self::freebsd(),
            Self::rsc_82599(2048),
            Self::ndis_rsc(),
            Self::ndis_uro(),
            Self::dpdk(),
            Self::wireguard(),
        ]
    }
}

impl Default for Profile {
    fn default() -> Self {
        Self::linux()
    }
}

/// A jiffy of Linux at 1000 Hz: at lower rates it keeps nothing across polls.
const JIFFY_NS: u64 = 1_000_000;
/// FIN and the flags of congestion control, as the low byte of the TCP flags.
const CONGESTION_AND_FINISH: u8 = (tcp::FIN | tcp::ECE | tcp::CWR) as u8;
/// Parts of a socket buffer in 2007, with pages of 4 KiB: `MAX_SKB_FRAGS`.
const SOCKET_BUFFER_PARTS: u16 = 18;
