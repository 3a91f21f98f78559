//! Causes that slow down a connection, their evidence, and their remedies.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::Serialize;

/// Reason why one direction of a connection is slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Large packets never arrive although smaller ones do, and no ICMP message explains it.
    BlackHole,
    /// A router merged packets (LRO) and could not forward the result.
    MergedByRouter,
    /// The sender's packets are still larger than the path MTU reported by an ICMP message.
    PathMtuIgnored,
    /// An ICMP message lowered the path MTU, and the sender obeyed.
    PathMtu,
    /// Checksums are complete but wrong.
    BadChecksums,
    /// The receiver closed its window.
    ZeroWindow,
    /// Packets were lost before they reached the capture point.
    LostBefore,
    /// Packets were lost after the capture point.
    LostAfter,
    /// Packets arrived at the capture point after later packets.
    ReorderedBefore,
    /// Packets were reordered after the capture point.
    ReorderedAfter,
    /// The network delivers packets twice.
    Duplicated,
    /// Acknowledgments were lost before they reached the capture point.
    AcksLost,
    /// Each acknowledgment covers many packets even though none was lost.
    AcksStretched,
    /// Packets were retransmitted even though none was lost.
    Spurious,
    /// The receive window is smaller than the bandwidth-delay product.
    ReceiveWindow,
    /// The peer, or a router that changed its SYN, announced a small MSS.
    SmallMss,
    /// Every packet has PSH set, which ends its train.
    PushOnEveryPacket,
    /// Packets from many flows alternate, so few packets in a poll belong to the same flow.
    AlternatingFlows,
    /// Packets carry only a few bytes each.
    TinySegments,
    /// The timestamp option changes from packet to packet, which ends trains.
    SteppingTimestamps,
    /// The sender had nothing to send.
    Application,
    /// The sender waited for acknowledgments even though the receive window was open.
    CongestionWindow,
}

/// Kind of evidence for a cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Sequence numbers and acknowledgments.
    Sequence,
    /// Steps of the IPv4 ID.
    IpId,
    /// TCP timestamp option.
    Timestamps,
    /// Capture times, compared with the round-trip time. This is only a guess.
    Timing,
    /// The receiver reported data that had arrived twice.
    Dsack,
    /// The receiver reported gaps that closed later.
    Sack,
    /// ICMP messages.
    Icmp,
    /// Receive windows announced by the peer.
    Window,
    /// Checksums.
    Checksum,
    /// TCP flags.
    Flags,
    /// Segment sizes.
    Sizes,
    /// Packets from other flows between the packets of a flow.
    Order,
}

/// Cause that slows down one direction.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Finding {
    /// The cause.
    pub cause: Cause,
    /// The evidence.
    pub basis: Basis,
    /// Whether the evidence also allows a different cause.
    pub guess: bool,
    /// Number of affected packets.
    pub packets: u64,
    /// Total number of packets of the kind counted in `packets`: either all data packets in the direction, or all
    /// acknowledgments.
    pub of_packets: u64,
    /// MTU, window or segment size in bytes; `None` if the cause does not involve a size.
    pub bytes: Option<u64>,
    /// Duration of the effect: the maximum delay of a late packet, the time during which the window was closed, or the
    /// total of the pauses. For alternating flows, the mean time between packets of the flow.
    pub time_ns: Option<u64>,
}

impl Cause {
    /// Returns a phrase for the cause that serves as the predicate of a sentence.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BlackHole => "path MTU black hole: large packets never arrive, smaller ones do",
            Self::MergedByRouter => "a router merged packets and could not forward them",
            Self::PathMtuIgnored => "the sender ignores ICMP errors and exceeds the path MTU",
            Self::PathMtu => "ICMP lowered the path MTU, and the sender obeyed",
            Self::BadChecksums => "wrong checksums, so the receiver drops the packets",
            Self::ZeroWindow => "receive window closed: the application reads too slowly",
            Self::LostBefore => "lost before this capture point",
            Self::LostAfter => "lost after this capture point",
            Self::ReorderedBefore => "reordered before this capture point",
            Self::ReorderedAfter => "reordered after this capture point",
            Self::Duplicated => "duplicated by the network",
            Self::AcksLost => "acknowledgments lost before this capture point",
            Self::AcksStretched => "acknowledgments merged or stretched",
            Self::Spurious => "retransmitted, although not lost",
            Self::ReceiveWindow => "receive window too small for the round trip",
            Self::SmallMss => "small MSS, announced by the peer or set by a router",
            Self::PushOnEveryPacket => "PSH on every packet, so GRO cannot merge packets",
            Self::AlternatingFlows => "many flows alternate, so GRO merges few packets of each",
            Self::TinySegments => "tiny segments",
            Self::SteppingTimestamps => "timestamps differ from packet to packet",
            Self::Application => "the sender paused: no data from its application",
            Self::CongestionWindow => {
                "congestion window or send buffer too small for the round trip"
            }
        }
    }

    /// Returns the cause's name in JSON and in exported tables.
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

    /// Returns the Linux settings that remove the cause or reveal where it originates, without measured values.
    const fn linux(self) -> &'static str {
        match self {
            Self::BlackHole => {
                "let ICMP \"too big\" pass; sysctl -w net.ipv4.tcp_mtu_probing=1 on the sender"
            }
            Self::MergedByRouter => "ethtool -K DEV lro off on the router",
            Self::PathMtuIgnored => {
                "let ICMP reach the sender, or run ip route change DEST mtu lock MTU on it"
            }
            Self::PathMtu => {
                "iptables -t mangle -A FORWARD -p tcp --syn -j TCPMSS --clamp-mss-to-pmtu on the \
                 router"
            }
            Self::BadChecksums => {
                "check ethtool -S DEV | grep -i crc; as a test, run ethtool -K DEV tx off on the sender"
            }
            Self::ZeroWindow => "run ss -tmi on the receiver: Recv-Q shows unread bytes",
            Self::LostBefore | Self::LostAfter => {
                "tc -s qdisc and ethtool -S DEV show where packets are lost; ethtool -G DEV rx 4096 if \
                 the NIC drops them"
            }
            Self::ReorderedBefore | Self::ReorderedAfter => {
                "keep each flow on one queue: ethtool -N DEV rx-flow-hash tcp4 sdfn; on bonds: \
                 xmit_hash_policy layer3+4"
            }
            Self::Duplicated => {
                "look for a loop or a mirror port: bridge mdb, bridge fdb, tc filter"
            }
            Self::AcksLost => {
                "check tc -s qdisc on the reverse path: its queue may be too short, or full of data"
            }
            Self::AcksStretched => {
                "ethtool -C DEV rx-usecs 20 on the receiver; remove ack-filter from routers (tc qdisc \
                 show lists it)"
            }
            Self::Spurious => "sysctl -w net.ipv4.tcp_recovery=1 on the sender (RACK)",
            Self::ReceiveWindow => {
                "sysctl -w net.ipv4.tcp_rmem=\"4096 131072 33554432\" on the receiver; do not set SO_RCVBUF"
            }
            Self::SmallMss => {
                "nft list ruleset and iptables -t mangle -S show TCPMSS rules of routers; ip link \
                 set DEV mtu 1500 on the peer"
            }
            Self::PushOnEveryPacket => "use larger writes on the sender, or MSG_MORE or TCP_CORK",
            Self::AlternatingFlows => {
                "ethtool -L DEV combined N and ethtool -X DEV equal N; ethtool -N DEV \
                 rx-flow-hash tcp4 sdfn"
            }
            Self::TinySegments => "remove TCP_NODELAY on the sender, or set TCP_CORK",
            Self::SteppingTimestamps => {
                "ip route change DEST without features tcp_usec_ts on the sender"
            }
            Self::Application => "no setting helps: the network waited for the sender",
            Self::CongestionWindow => {
                "ss -ti on the sender shows cwnd and sndbuf_limited; sysctl -w \
                 net.ipv4.tcp_wmem=\"4096 131072 33554432\" there; do not set SO_SNDBUF"
            }
        }
    }
}

impl Finding {
    /// Returns the Linux settings that remove the cause or reveal where it originates.
    pub fn linux(&self) -> Cow<'static, str> {
        let settings = self.cause.linux();
        match (self.cause, self.time_ns) {
            (Cause::AlternatingFlows, Some(apart_ns)) => {
                let hold_us = hold_us(apart_ns);
                format!("{settings}; gro_flush_timeout {hold_us}000 with napi_defer_hard_irqs 2")
                    .into()
            }
            _ => settings.into(),
        }
    }

    /// Returns the Grosso command that helps, if any. Resequencing helps if the latest packet arrives within the
    /// maximum time to wait for a hole. Packets of alternating flows merge if a train is held until more packets of its
    /// flow arrive.
    pub fn grosso(&self) -> Option<String> {
        let options = match (self.cause, self.time_ns) {
            (Cause::ReorderedBefore, Some(..=POLL_NS)) => "--reorder batch".into(),
            (Cause::ReorderedBefore, Some(late_ns @ ..=LATE_NS_MAX)) => {
                format!("--reorder holes:{}us", late_ns.div_ceil(1000))
            }
            (Cause::AcksStretched, _) => "--expand-acks".into(),
            (Cause::AlternatingFlows, Some(apart_ns)) => format!("--hold {}us", hold_us(apart_ns)),
            (Cause::PushOnEveryPacket, _) => "--profile freebsd --terminates".into(),
            (Cause::SteppingTimestamps, _) => "--profile inet-lro --terminates".into(),
            _ => return None,
        };
        Some(format!("grosso bridge DEV tap:NAME {options}"))
    }
}

/// Returns the hold time, in microseconds, that merges packets of a flow with a mean distance of `apart_ns`.
fn hold_us(apart_ns: u64) -> u64 {
    apart_ns.saturating_mul(HELD_GAPS).min(HOLD_NS_MAX).div_ceil(1000)
}

/// Maximum delay, in nanoseconds, of a late packet that still arrives in the same poll of a device.
const POLL_NS: u64 = 20_000;
/// Maximum delay, in nanoseconds, for which it is worth waiting for a late packet. A longer wait would delay
/// acknowledgments until the sender's retransmission timer expires.
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
