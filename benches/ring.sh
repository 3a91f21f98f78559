#!/bin/sh
# Measures packet loss at the receive ring of `grosso bridge` between two hosts. Needs root, and the tools ip, ethtool,
# iperf3 and jq:
#
#   benches/ring.sh quiet GROSSO [OPTION...]   loss of a flow of 500 datagrams/s next to two TCP senders of single
#                                              packets, in nine runs of four seconds
#   benches/ring.sh xdp GROSSO [OPTION...]     the loss through a bridge of AF_XDP ports, with checksum offload
#                                              off on the hosts
#   benches/ring.sh alone GROSSO [OPTION...]   retransmits of one TCP stream in ten runs of three seconds, through a
#                                              bridge and over only a veth, alternating
#   benches/ring.sh tunnel GROSSO WORDS        the loss through a tunnel of `grosso tunnel` (`type vxlan id 1`)
#                                              between the two hosts, and the places where packets were dropped
#
# GROSSO is the program, and the options are those of `grosso bridge`; RUNS in the environment sets the number of runs.
# One CPU serves each end of a veth pair, so that a sender that moves between CPUs does not reorder its own packets.
# Tail loss probes are off (`tcp_early_retrans`), because a delayed tail is not lost. Without these settings, even a
# plain veth pair causes retransmissions.
set -eu
what=$1 grosso=$2
shift 2
a=ring-a-$$ b=ring-b-$$ g=ring-g-$$
scratch=$(mktemp -d)
servers= tunnels= kind=
far=10.9.0.2

# end NAMESPACE DEVICE ADDRESS: creates a host at one endpoint of the link.
end() {
    ip netns exec "$1" sysctl -qw net.ipv4.tcp_early_retrans=0
    ip -n "$1" addr add "$3" dev "$2"
    ip -n "$1" link set lo up
    up "$1" "$2"
}

up() {
    ip -n "$1" link set "$2" up
    ip netns exec "$1" sh -c "echo 2 > /sys/class/net/$2/queues/rx-0/rps_cpus"
}

# bridged on|off [OPTION...]: creates two hosts connected by a bridge, with segmentation offload on or off.
bridged() {
    offload=$1
    shift
    for n in "$a" "$b" "$g"; do ip netns add "$n"; done
    ip link add a0 netns "$a" type veth peer name ga netns "$g"
    ip link add b0 netns "$b" type veth peer name gb netns "$g"
    up "$g" ga
    up "$g" gb
    hosts
    ip netns exec "$a" ethtool -K a0 tso "$offload" gso "$offload"
    ip netns exec "$g" "$grosso" bridge "${kind}ga" "${kind}gb" "$@" >"$scratch/bridge" 2>&1 &
    bridge=$!
    sleep 1
}

# plain: creates two hosts that are connected directly.
plain() {
    for n in "$a" "$b"; do ip netns add "$n"; done
    ip link add a0 netns "$a" type veth peer name b0 netns "$b"
    hosts
}

hosts() {
    end "$a" a0 10.9.0.1/24
    end "$b" b0 10.9.0.2/24
}

# tunnelled WORDS: creates two hosts connected by a tunnel, and sends single packets into it.
tunnelled() {
    plain
    joined "$a" 10.9.0.1 10.9.0.2 "$@"
    joined "$b" 10.9.0.2 10.9.0.1 "$@"
    ip netns exec "$a" ethtool -K t0 tso off gso off >/dev/null
}

# joined NAMESPACE LOCAL REMOTE WORDS: creates an endpoint of the tunnel.
joined() {
    n=$1 local=$2 remote=$3
    shift 3
    ip netns exec "$n" "$grosso" tunnel add t0 "$@" local "$local" remote "$remote" >"$scratch/$n"
    tunnels="$tunnels $n"
    ip -n "$n" addr add "10.8.${local#10.9.}/24" dev t0
}

# drops NAMESPACE NAME: prints the drops at a tunnel endpoint, at its device and at its sockets.
drops() {
    device=$(ip -n "$1" -s -j link show t0 | jq -c '.[0].stats64 | [.rx.dropped, .tx.dropped]')
    tunnel=$(ip netns exec "$1" "$grosso" tunnel show t0 --json | jq -c '.tunnels[0].drops')
    echo "$2: device [rx, tx] $device, tunnel $tunnel"
}

# serve PORT: starts a server for one test.
serve() {
    ip netns exec "$b" iperf3 -s -1 -p "$1" >"$scratch/server" 2>&1 &
    servers="$servers $!"
    sleep 0.3
}

# from PORT OPTION...: runs a test from one host to the other.
from() {
    port=$1
    shift
    ip netns exec "$a" iperf3 -c "$far" -p "$port" -J "$@"
}

clear() {
    if [ -n "${bridge-}" ]; then
        kill -INT "$bridge" && wait "$bridge" || true
        grep drop_rx "$scratch/bridge" || true
    fi
    bridge=
    for n in $tunnels; do ip netns exec "$n" "$grosso" tunnel del t0 || true; done
    tunnels=
    for server in $servers; do kill "$server" 2>/dev/null || true; done
    servers=
    for n in "$a" "$b" "$g"; do ip netns del "$n" 2>/dev/null || true; done
}

trap 'clear; rm -rf "$scratch"' EXIT

# alone_once NAME: measures throughput and retransmissions of one stream.
alone_once() {
    serve 5201
    from 5201 -t 3 >"$scratch/tcp"
    jq -r --arg name "$1" '.end | "\($name): \(.sum_received.bits_per_second / 1e6 | round) Mb/s, " +
        "\(.sum_sent.retransmits) retransmits"' "$scratch/tcp"
}

# beside: measures a quiet flow next to two greedy ones, repeatedly.
beside() {
    for _ in $(seq "${RUNS:-9}"); do
        serve 5201
        serve 5202
        from 5201 -t 6 -P 2 >"$scratch/tcp" &
        tcp=$!
        sleep 1
        from 5202 -u -b 400k -l 100 -t 4 >"$scratch/udp"
        wait "$tcp"
        jq -rs '"\(.[1].end.sum_received.bits_per_second / 1e6 | round) Mb/s of TCP beside " +
            "\(.[0].end.sum.packets) datagrams, of which \(.[0].end.sum.lost_packets) were lost, " +
            "\(.[0].end.sum.lost_percent * 100 | round / 100) %"' "$scratch/udp" "$scratch/tcp"
    done
}

case $what in
quiet)
    bridged off "$@"
    beside
    ;;
xdp)
    kind=xdp:
    bridged off "$@"
    ip netns exec "$a" ethtool -K a0 tx off >/dev/null
    ip netns exec "$b" ethtool -K b0 tx off >/dev/null
    beside
    ;;
tunnel)
    tunnelled "$@"
    far=10.8.0.2
    beside
    drops "$a" sender
    drops "$b" receiver
    ;;
alone)
    for _ in $(seq "${RUNS:-10}"); do
        plain
        alone_once veth
        clear
        bridged on "$@"
        alone_once bridge
        clear
    done
    ;;
esac
