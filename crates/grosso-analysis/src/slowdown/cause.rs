//! Causes, the evidence for them, and their remedies.

use schemars::JsonSchema;
use serde::Serialize;

/// A reason why a direction of a connection is slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Large packets never arrive, smaller ones do, and no ICMP message says why.
    BlackHole,
    /// A router merged packets (LRO) and could not forward the result.
    MergedByRouter,
    /// Packets stay larger than the path MTU that an ICMP message reported.
    PathMtuIgnored,
    /// An ICMP message lowered the path MTU, and the sender obeyed.
    PathMtu,
    /// Checksums are complete and wrong.
    BadChecksums,
    /// The receiver closed its window.
    ZeroWindow,
    /// Packets were lost before they reached the capture point.
    LostBefore,
    /// Packets were lost after the capture point.
    LostAfter,
    /// Packets reached the capture point after later ones.
    ReorderedBefore,
    /// Packets were reordered after the capture point.
    ReorderedAfter,
    /// The network delivers packets twice.
    Duplicated,
    /// Acknowledgments were lost before they reached the capture point.
    AcksLost,
    /// Each acknowledgment covers many packets, although none was lost.
    AcksStretched,
    /// Packets were retransmitted although none was lost.
    Spurious,
    /// The receive window is smaller than bandwidth times round trip.
    ReceiveWindow,
    /// The peer, or a router that changed its SYN, announced a small MSS.
    SmallMss,
    /// Every packet has PSH, which ends its train.
    PushOnEveryPacket,
    /// Packets of many flows alternate, so that few packets of one flow are in a poll.
    AlternatingFlows,
    /// Packets carry a few bytes each.
    TinySegments,
    /// The timestamp differs from packet to packet, which ends trains.
    SteppingTimestamps,
    /// The sender had nothing to send.
    Application,
    /// The sender waited for acknowledgments although the receive window was open.
    CongestionWindow,
}

/// The evidence for a cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Sequence numbers and acknowledgments.
    Sequence,
    /// Steps of the IPv4 identification.
    IpId,
    /// The timestamp option.
    Timestamps,
    /// Capture times, compared with the round trip: a guess.
    Timing,
    /// The receiver reported data that came twice.
    Dsack,
    /// The receiver reported gaps that closed.
    Sack,
    /// ICMP messages.
    Icmp,
    /// Windows of the peer.
    Window,
    /// Checksums.
    Checksum,
    /// TCP flags.
    Flags,
    /// Segment sizes.
    Sizes,
    /// Packets of other flows between packets of a flow.
    Order,
}

/// A cause that slows one direction.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Finding {
    /// The cause.
    pub cause: Cause,
    /// The evidence.
    pub basis: Basis,
    /// Whether the evidence leaves room for another cause.
    pub guess: bool,
    /// The affected packets.
    pub packets: u64,
    /// The packets with data of the direction, or its acknowledgments.
    pub of_packets: u64,
    /// An MTU, a window or a segment size in bytes, if the cause has one.
    pub bytes: Option<u64>,
    /// The time that the cause takes: the largest lateness, the time with a closed window, or pauses. For alternating
    /// flows, the mean time between packets of the flow.
    pub time_ns: Option<u64>,
}

impl Cause {
    /// Returns a phrase for the cause, as the predicate of a sentence.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BlackHole => "path MTU black hole: large packets never arrive, smaller ones do",
            Self::MergedByRouter => "a router merged packets and could not forward them",
            Self::PathMtuIgnored => "the sender ignores ICMP errors and exceeds the path MTU",
            Self::PathMtu => "path MTU lowered by ICMP; the sender obeyed",
            Self::BadChecksums => "wrong checksums, so the receiver drops the packets",
            Self::ZeroWindow => "receive window closed: the application reads too slowly",
            Self::LostBefore => "lost before this capture point",
            Self::LostAfter => "lost after this capture point",
            Self::ReorderedBefore => "reordered before this capture point",
            Self::ReorderedAfter => "reordered after this capture point",
            Self::Duplicated => "duplicated by the network",
            Self::AcksLost => "acknowledgments lost before this capture point",
            Self::AcksStretched => "acknowledgments merged or stretched",
            Self::Spurious => "retransmitted although not lost",
            Self::ReceiveWindow => "receive window too small for the round trip",
            Self::SmallMss => "small MSS, announced by the peer or set by a router",
            Self::PushOnEveryPacket => "PSH on every packet, so GRO cannot merge them",
            Self::AlternatingFlows => "many flows alternate, so GRO merges few packets of each",
            Self::TinySegments => "tiny segments",
            Self::SteppingTimestamps => "timestamps differ from packet to packet",
            Self::Application => "the sender paused: no data from its application",
            Self::CongestionWindow => {
                "congestion window or send buffer too small for the round trip"
            }
        }
    }

    /// Returns the name of the cause in JSON and in exported tables.
    pub const fn code(self) -> &'static str {
        match self {
            Self::BlackHole => "black_hole",
            Self::MergedByRouter => "merged_by_router",
            Self::PathMtuIgnored => "path_mtu_ignored",
            Self::PathMtu => "path_mtu",
            Self::BadChecksums => "bad_checksums",
            Self::ZeroWindow => "zero_window",
            Self::LostBefore => "lost_before",
            Self::LostAfter => "lost_after",
            Self::ReorderedBefore => "reordered_before",
            Self::ReorderedAfter => "reordered_after",
            Self::Duplicated => "duplicated",
            Self::AcksLost => "acks_lost",
            Self::AcksStretched => "acks_stretched",
            Self::Spurious => "spurious",
            Self::ReceiveWindow => "receive_window",
            Self::SmallMss => "small_mss",
            Self::PushOnEveryPacket => "push_on_every_packet",
            Self::AlternatingFlows => "alternating_flows",
            Self::TinySegments => "tiny_segments",
            Self::SteppingTimestamps => "stepping_timestamps",
            Self::Application => "application",
            Self::CongestionWindow => "congestion_window",
        }
    }

    /// Returns a short name of the cause for tables.
    pub const fn label(self) -> &'static str {
        match self {
            Self::BlackHole => "MTU black hole",
            Self::MergedByRouter => "router merged packets",
            Self::PathMtuIgnored => "path MTU ignored",
            Self::PathMtu => "path MTU lowered",
            Self::BadChecksums => "wrong checksums",
            Self::ZeroWindow => "zero window",
            Self::LostBefore => "lost before capture",
            Self::LostAfter => "lost after capture",
            Self::ReorderedBefore => "reordered before capture",
            Self::ReorderedAfter => "reordered after capture",
            Self::Duplicated => "duplicated",
            Self::AcksLost => "ACKs lost",
            Self::AcksStretched => "ACKs stretched",
            Self::Spurious => "spurious retransmissions",
            Self::ReceiveWindow => "receive window",
            Self::SmallMss => "small MSS",
            Self::PushOnEveryPacket => "PSH on every packet",
            Self::AlternatingFlows => "alternating flows",
            Self::TinySegments => "tiny segments",
            Self::SteppingTimestamps => "changing timestamps",
            Self::Application => "sender paused",
            Self::CongestionWindow => "congestion window",
        }
    }

    /// Returns the Linux settings that remove the cause or show its origin.
    pub const fn linux(self) -> &'static str {
        match self {
            Self::BlackHole => {
                "let ICMP \"too big\" pass; sysctl -w net.ipv4.tcp_mtu_probing=1 on the sender"
            }
            Self::MergedByRouter => "ethtool -K DEV lro off on the router",
            Self::PathMtuIgnored => {
                "let ICMP reach the sender; ip route change DEST mtu lock MTU there"
            }
            Self::PathMtu => {
                "iptables -t mangle -A FORWARD -p tcp --syn -j TCPMSS --clamp-mss-to-pmtu on the \
                 router"
            }
            Self::BadChecksums => {
                "ethtool -S DEV | grep -i crc; ethtool -K DEV tx off on the sender as a test"
            }
            Self::ZeroWindow => "ss -tmi on the receiver: Recv-Q shows unread bytes",
            Self::LostBefore | Self::LostAfter => {
                "tc -s qdisc and ethtool -S DEV show where; ethtool -G DEV rx 4096 if the NIC drops"
            }
            Self::ReorderedBefore | Self::ReorderedAfter => {
                "one queue per flow: ethtool -N DEV rx-flow-hash tcp4 sdfn; bonds: \
                 xmit_hash_policy layer3+4"
            }
            Self::Duplicated => {
                "look for a loop or a mirror port: bridge mdb, bridge fdb, tc filter"
            }
            Self::AcksLost => {
                "tc -s qdisc on the reverse path: its queue is short, or full of data"
            }
            Self::AcksStretched => {
                "ethtool -C DEV rx-usecs 20 on the receiver; no ack-filter on routers (tc qdisc show)"
            }
            Self::Spurious => "sysctl -w net.ipv4.tcp_recovery=1 on the sender (RACK)",
            Self::ReceiveWindow => {
                "sysctl -w net.ipv4.tcp_rmem=\"4096 131072 33554432\" on the receiver; do not set SO_RCVBUF"
            }
            Self::SmallMss => {
                "nft list ruleset and iptables -t mangle -S show TCPMSS rules of routers; ip link \
                 set DEV mtu 1500 on the peer"
            }
            Self::PushOnEveryPacket => "larger writes on the sender: MSG_MORE or TCP_CORK",
            Self::AlternatingFlows => {
                "ethtool -L DEV combined N and ethtool -X DEV equal N; ethtool -N DEV \
                 rx-flow-hash tcp4 sdfn; gro_flush_timeout 50000 with napi_defer_hard_irqs 2"
            }
            Self::TinySegments => "remove TCP_NODELAY on the sender, or set TCP_CORK",
            Self::SteppingTimestamps => {
                "ip route change DEST without features tcp_usec_ts on the sender"
            }
            Self::Application => "no setting helps: the network waited for the sender",
            Self::CongestionWindow => {
                "ss -ti on the sender shows cwnd and sndbuf_limited; sysctl -w \
                 net.ipv4.tcp_wmem=\"4096 131072 33554432\" there; no SO_SNDBUF"
            }
        }
    }
}

impl Finding {
    /// Returns the Grosso command that helps, if any. Reordering can be repaired if the latest packet arrives within
    /// the maximum wait for a hole. Packets of flows that alternate merge if a train is held until more packets of its
    /// flow arrive.
    pub fn grosso(&self) -> Option<String> {
        let options = match (self.cause, self.time_ns) {
            (Cause::ReorderedBefore, Some(..=POLL_NS)) => "--reorder batch".into(),
            (Cause::ReorderedBefore, Some(late_ns @ ..=LATE_NS_MAX)) => {
                format!("--reorder holes:{}us", late_ns.div_ceil(1000))
            }
            (Cause::AcksStretched, _) => "--expand-acks".into(),
            (Cause::AlternatingFlows, Some(apart_ns)) => {
                let hold_ns = apart_ns.saturating_mul(HELD_GAPS).min(HOLD_NS_MAX);
                format!("--hold {}us", hold_ns.div_ceil(1000))
            }
            (Cause::PushOnEveryPacket, _) => "--profile freebsd --terminates".into(),
            (Cause::SteppingTimestamps, _) => "--profile inet-lro --terminates".into(),
            _ => return None,
        };
        Some(format!("grosso bridge DEV tap:NAME {options}"))
    }
}

/// Maximum lateness within one poll of a device, in nanoseconds.
const POLL_NS: u64 = 20_000;
/// Maximum lateness that is worth a wait, in nanoseconds. A longer wait delays acknowledgments until the sender's timer
/// retransmits.
const LATE_NS_MAX: u64 = 50_000_000;
/// Number of gaps between packets of a flow for which a train is held: the first packet waits for three more.
const HELD_GAPS: u64 = 3;
/// Maximum hold in nanoseconds: Linux also keeps trains for at most a millisecond.
const HOLD_NS_MAX: u64 = 1_000_000;

impl Basis {
    /// Returns a phrase for the evidence.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sequence => "sequence numbers",
            Self::IpId => "IP-ID order",
            Self::Timestamps => "TCP timestamps",
            Self::Timing => "guessed from the round trip",
            Self::Dsack => "DSACK",
            Self::Sack => "SACK",
            Self::Icmp => "ICMP",
            Self::Window => "windows",
            Self::Checksum => "checksums",
            Self::Flags => "TCP flags",
            Self::Sizes => "segment sizes",
            Self::Order => "the order of flows",
        }
    }
}
