//! Situations in which a stream has a fault. Each contains the commands that create the fault, and the cause that
//! `inspect` must name first at each capture point.

use std::time::Duration;

use super::counters::Counters;

/// Behavior of the sending and the receiving application.
#[derive(Clone, Copy, Debug)]
pub(super) struct Applications {
    /// Number of bytes in the stream.
    pub(super) bytes: usize,
    /// Number of bytes per write. `write_pause` is the pause after it.
    pub(super) write: usize,
    pub(super) write_pause: Duration,
    /// Whether each write begins a new packet.
    pub(super) is_record: bool,
    /// Number of bytes per read. `read_pause` is the pause before it.
    pub(super) read: usize,
    pub(super) read_pause: Duration,
    /// Time for which the link stalls after the sixth of every 16 writes.
    pub(super) stall: Duration,
}

/// Devices between the sender and the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// Only the link.
    Direct,
    /// The link, and a router behind it.
    Routed,
    /// The link, and a router behind it whose device merges packets.
    Merged,
}

/// A fault, and the cause that must be named first at each capture point.
#[derive(Clone, Copy, Debug)]
pub(super) struct Situation {
    pub(super) name: &'static str,
    pub(super) route: Route,
    /// Impairment of the link. The seed determines `{delay}`, `{share}` and `{rate}`.
    pub(super) impairment: &'static str,
    pub(super) applications: Applications,
    /// Shell commands to run on the sender, on the host behind the link, and on the receiver behind the router.
    pub(super) setup: [&'static str; 3],
    /// Whether the counters show this fault and no other.
    pub(super) is_made: fn(&Counters) -> bool,
    /// The cause that must be named first at the sender and behind the link; `None` if there is none.
    pub(super) causes: [Option<&'static str>; 2],
    /// Cause that must be named first at the receiver behind the router: `Some(None)` if no cause must be named, `None`
    /// if captures there are not judged.
    pub(super) behind_router: Option<Option<&'static str>>,
    /// Whether the stream uses IPv6.
    pub(super) is_ipv6: bool,
    /// Number of healthy streams that run at the same time, in the same captures.
    pub(super) others: usize,
}

impl Situation {
    /// Returns the impairment for a seed.
    pub(super) fn impairment(&self, seed: u64) -> String {
        let choose = |choices: [&str; 4], step: u64| choices[(seed / step % 4) as usize].to_owned();
        let strengths = [
            ("{delay}", choose(["2ms", "5ms", "8ms", "12ms"], 1)),
            ("{share}", choose(["2%", "1%", "3%", "5%"], 3)),
            ("{rate}", choose(["10M", "8M", "5M", "6M"], 5)),
        ];
        let mut impairment = format!("{} seed {seed}", self.impairment);
        for (name, strength) in strengths {
            impairment = impairment.replace(name, &strength);
        }
        impairment
    }
}

const BUSY: Applications = Applications {
    bytes: 1 << 20,
    write: 32 << 10,
    write_pause: Duration::ZERO,
    is_record: false,
    read: 16 << 10,
    read_pause: Duration::ZERO,
    stall: Duration::ZERO,
};

/// A stream whose rate the link limits, without loss.
pub(super) const HEALTHY: Situation = Situation {
    name: "healthy",
    route: Route::Direct,
    impairment: "delay {delay} rate {rate}",
    applications: Applications { bytes: 512 << 10, ..BUSY },
    setup: ["", "", ""],
    is_made: Counters::is_free,
    causes: [None, None],
    behind_router: None,
    is_ipv6: false,
    others: 0,
};

/// A link that lets some packets overtake others.
const REORDERING: Situation = Situation {
    name: "reordering",
    impairment: "delay {delay} reorder {share}",
    applications: BUSY,
    is_made: |counters| {
        counters.out_of_order() >= MANY.max(3 * counters.retransmitted())
            && !counters.is_window_limited()
    },
    causes: [Some("reordered_after"), Some("reordered_before")],
    ..HEALTHY
};

/// A stream over IPv6, whose packets have no identification.
pub(super) const HEALTHY_IPV6: Situation =
    Situation { name: "healthy, IPv6", is_ipv6: true, ..HEALTHY };

/// A stream over a link without impairment.
pub(super) const HEALTHY_LOCAL: Situation =
    Situation { name: "healthy, no delay", impairment: "delay 0ms", ..HEALTHY };

/// A stream through a router whose links all have the same MTU.
pub(super) const HEALTHY_ROUTED: Situation = Situation {
    name: "healthy, routed",
    route: Route::Routed,
    behind_router: Some(None),
    ..HEALTHY
};

/// A stream of superframes.
pub(super) const HEALTHY_OFFLOADED: Situation =
    Situation { name: "healthy, TSO", setup: ["ethtool -K a0 tso on gso on", "", ""], ..HEALTHY };

/// Faults of the network and the hosts.
pub(super) const FAULTS: [Situation; 22] = [
    Situation {
        name: "loss",
        impairment: "delay {delay} loss {share}",
        applications: BUSY,
        is_made: |counters| counters.is_loss(),
        causes: [Some("lost_after"), Some("lost_before")],
        ..HEALTHY
    },
    Situation {
        name: "loss, IPv6",
        impairment: "delay {delay} loss {share}",
        applications: BUSY,
        is_made: |counters| counters.is_loss(),
        causes: [Some("lost_after"), Some("lost_before")],
        is_ipv6: true,
        ..HEALTHY
    },
    Situation {
        name: "loss before the router",
        route: Route::Routed,
        impairment: "delay {delay} loss {share}",
        applications: BUSY,
        is_made: |counters| counters.is_loss(),
        causes: [Some("lost_after"), Some("lost_before")],
        behind_router: Some(Some("lost_before")),
        ..HEALTHY
    },
    Situation {
        name: "loss behind the router",
        route: Route::Routed,
        impairment: "delay {delay}",
        applications: BUSY,
        setup: ["", LOSE_FORWARDED, ""],
        is_made: |counters| counters.is_loss(),
        causes: [Some("lost_after"); 2],
        behind_router: Some(Some("lost_before")),
        ..HEALTHY
    },
    Situation {
        name: "full queue",
        impairment: "delay {delay} rate {rate} limit 24",
        is_made: |counters| {
            let (needed, unneeded) = (counters.retransmitted(), counters.received_twice());
            needed >= MANY && unneeded * 4 <= needed
        },
        causes: [Some("lost_after"), Some("lost_before")],
        ..HEALTHY
    },
    Situation {
        name: "loss at the end of bursts",
        impairment: "delay {delay} loss 5%",
        applications: Applications { bytes: 96 << 10, write: 2896, write_pause: PAUSE, ..BUSY },
        is_made: |counters| counters.retransmitted() >= 2 && counters.received_twice() == 0,
        causes: [Some("lost_after"), Some("lost_before")],
        ..HEALTHY
    },
    REORDERING,
    Situation { name: "reordering, IPv6", is_ipv6: true, ..REORDERING },
    Situation {
        name: "duplication",
        impairment: "delay {delay} duplicate {share}",
        applications: BUSY,
        is_made: |counters| counters.received_twice() >= MANY && counters.retransmitted() == 0,
        causes: [Some("duplicated"); 2],
        ..HEALTHY
    },
    Situation {
        name: "corruption",
        impairment: "delay {delay} corrupt {share}",
        applications: BUSY,
        is_made: |counters| counters.damaged() >= MANY && counters.received_twice() < MANY,
        causes: [Some("lost_after"), Some("bad_checksums")],
        ..HEALTHY
    },
    Situation {
        name: "lost acknowledgments",
        impairment: "delay {delay}",
        applications: BUSY,
        setup: ["", LOSE_ACKS, ""],
        causes: [Some("acks_lost"); 2],
        ..HEALTHY
    },
    Situation {
        name: "stalled link",
        impairment: "delay {delay}",
        setup: [SHORT_TIMER, "", ""],
        applications: Applications { stall: Duration::from_millis(1600), ..BUSY },
        is_made: |counters| {
            let (sent, twice) = (counters.retransmitted(), counters.received_twice());
            sent >= 3 && twice + 1 >= sent && counters.out_of_order() == 0
        },
        causes: [Some("spurious"); 2],
        ..HEALTHY
    },
    Situation {
        name: "small receive window",
        // The delay is much longer than the time for which a reader waits for a CPU.
        impairment: "delay 15ms",
        setup: ["", "sysctl -qw net.ipv4.tcp_rmem='4096 16384 16384'", ""],
        is_made: |counters| counters.is_clean() && counters.is_mostly_window_limited(),
        causes: [Some("receive_window"); 2],
        ..HEALTHY
    },
    Situation {
        name: "slow reader",
        impairment: "delay 2ms",
        applications: Applications { read_pause: PAUSE, bytes: 512 << 10, ..BUSY },
        setup: ["", "sysctl -qw net.ipv4.tcp_rmem='4096 65536 65536'", ""],
        is_made: |counters| counters.zero_windows() >= MANY && counters.retransmitted() == 0,
        causes: [Some("zero_window"); 2],
        ..HEALTHY
    },
    Situation {
        name: "slow reader beside healthy streams",
        impairment: "delay 2ms",
        applications: Applications { read_pause: PAUSE, bytes: 512 << 10, ..BUSY },
        setup: ["", "sysctl -qw net.ipv4.tcp_rmem='4096 65536 65536'", ""],
        is_made: |counters| counters.zero_windows() >= MANY && counters.retransmitted() == 0,
        causes: [Some("zero_window"); 2],
        others: 3,
        ..HEALTHY
    },
    Situation {
        name: "slow reader, buffer of a few segments",
        impairment: "delay 2ms",
        applications: Applications {
            bytes: 64 << 10,
            write: 8 << 10,
            read: 2 << 10,
            read_pause: PAUSE,
            ..BUSY
        },
        setup: ["", "sysctl -qw net.ipv4.tcp_rmem='4096 8192 8192'", ""],
        is_made: |counters| counters.retransmitted() == 0 && counters.is_mostly_window_limited(),
        causes: [Some("zero_window"); 2],
        ..HEALTHY
    },
    Situation {
        name: "pausing writer",
        impairment: "delay {delay}",
        applications: Applications { write_pause: PAUSE, bytes: 512 << 10, ..BUSY },
        causes: [Some("application"); 2],
        ..HEALTHY
    },
    Situation {
        name: "path MTU",
        route: Route::Routed,
        impairment: "delay {delay}",
        setup: ["", "ip link set r1 mtu 1300", ""],
        is_made: |counters| counters.unreachable() >= 1 && !counters.is_window_limited(),
        causes: [Some("path_mtu"); 2],
        ..HEALTHY
    },
    Situation {
        name: "path MTU ignored",
        route: Route::Routed,
        impairment: "delay {delay}",
        setup: [DROP_ICMP_IN, "ip link set r1 mtu 1300", ""],
        is_made: |counters| counters.timeouts() >= 3,
        causes: [Some("path_mtu_ignored"); 2],
        ..HEALTHY
    },
    Situation {
        name: "black hole",
        route: Route::Routed,
        impairment: "delay {delay}",
        setup: [PROBE_MTU, DROP_ICMP_OUT, ""],
        is_made: |counters| counters.timeouts() >= 3,
        causes: [Some("black_hole"); 2],
        ..HEALTHY
    },
    Situation {
        name: "LRO on the router",
        route: Route::Merged,
        impairment: "delay {delay}",
        applications: BUSY,
        // The merging device does not complete checksums.
        setup: ["ethtool -K a0 tx off", "", ""],
        is_made: |counters| counters.unreachable() >= 1 && !counters.is_window_limited(),
        causes: [Some("merged_by_router"); 2],
        behind_router: Some(Some("lost_before")),
        ..HEALTHY
    },
    Situation {
        name: "PSH on every packet",
        impairment: "delay 2ms",
        applications: Applications { write: 1000, is_record: true, ..BUSY },
        causes: [Some("push_on_every_packet"); 2],
        ..HEALTHY
    },
];

/// Situations in which the rate of a stream is limited, but not by a network fault.
pub(super) const LIMITS: [Situation; 2] = [
    Situation {
        name: "tiny segments",
        impairment: "delay 2ms",
        applications: Applications { bytes: 100 << 10, write: 100, is_record: true, ..BUSY },
        causes: [Some("tiny_segments"); 2],
        ..HEALTHY
    },
    Situation {
        name: "clamped MSS",
        route: Route::Routed,
        setup: ["", CLAMP_MSS, ""],
        causes: [Some("small_mss"); 2],
        ..HEALTHY
    },
];

/// Commands that select the same congestion control on every machine and turn off tail loss probes, which retransmit if
/// a busy CPU delays an acknowledgment.
pub(super) const CALM_SENDER: &str = "sysctl -qw net.ipv4.tcp_congestion_control=reno && \
    sysctl -qw net.ipv4.tcp_early_retrans=0";

/// An initial receive window that limits no sender.
pub(super) const WIDE_RECEIVER: &str = "sysctl -qw net.ipv4.tcp_rmem='4096 4194304 8388608'";
pub(super) const ROUTED_SENDER: &str = "ip route add 10.10.0.0/24 via 10.9.0.2 dev a0";
pub(super) const ROUTER: &str = "sysctl -qw net.ipv4.ip_forward=1 && \
    ip address add 10.10.0.9/24 dev r1 && ip link set r1 up";
pub(super) const ROUTED_RECEIVER: &str = "ip address add 10.10.0.2/24 dev c0 && \
    ip link set c0 up && ip route add 10.9.0.0/24 via 10.10.0.9";

/// Drops one in ten acknowledgments that the receiver sends.
const LOSE_ACKS: &str = "nft add table ip t && \
    nft add chain ip t out '{ type filter hook output priority 0; }' && \
    nft add rule ip t out ip length 40-60 tcp flags == ack numgen inc mod 10 0 drop";
/// Makes the router drop 2 % of the large packets that it forwards.
const LOSE_FORWARDED: &str = "nft add table ip t && \
    nft add chain ip t through '{ type filter hook forward priority 0; }' && \
    nft add rule ip t through ip length 1000-1500 numgen random mod 50 0 drop";
/// Makes the sender probe the MTU, and drops the ICMP messages from the router.
const DROP_ICMP_IN: &str = "sysctl -qw net.ipv4.tcp_mtu_probing=1 && nft add table ip t && \
    nft add chain ip t in '{ type filter hook input priority 0; }' && \
    nft add rule ip t in icmp type destination-unreachable drop";
/// Makes the router drop large packets without a message.
const DROP_ICMP_OUT: &str = "ip link set r1 mtu 1300 && nft add table ip t && \
    nft add chain ip t out '{ type filter hook output priority 0; }' && \
    nft add rule ip t out icmp type destination-unreachable drop";
/// Makes the router lower the MSS in the SYNs of both directions.
const CLAMP_MSS: &str = "nft add table ip t && \
    nft add chain ip t through '{ type filter hook forward priority 0; }' && \
    nft add rule ip t through tcp flags syn tcp option maxseg size set 536";
/// Makes the sender retransmit after two round trips, and again soon after.
const SHORT_TIMER: &str = "ip route replace 10.9.0.0/24 dev a0 src 10.9.0.1 rto_min 20ms";
const PROBE_MTU: &str = "sysctl -qw net.ipv4.tcp_mtu_probing=1";

/// Minimum number of events of one kind that together count as a fault.
pub(super) const MANY: u64 = 4;
/// A pause that is longer than any round trip here.
const PAUSE: Duration = Duration::from_millis(50);
