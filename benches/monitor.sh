#!/usr/bin/env bash
# Measures what a monitor costs, and what it loses, at the receiver of one TCP stream, as root, with the tools ip,
# ethtool, iperf3, jq and tcpdump:
#
#   benches/monitor.sh GROSSO [MBIT...]   at each rate (500, 1000, 2000 and 4000 unless told), in three rounds in turn:
#                                         tcpdump  offloads on: the monitor sees superframes, which are not the wire
#                                         grosso   offloads on: `grosso capture --wire`, the packets of the wire
#                                         off      tcpdump with TSO, GSO and GRO off, as monitors advise
#
# Each line has the rate that was reached, packets a second that the monitor got, those that it lost, and its processor
# seconds a gigabyte of payload.
set -euo pipefail
grosso=$(realpath "$1")
shift
[ $# -gt 0 ] || set -- 500 1000 2000 4000
a=monitor-a-$$ b=monitor-b-$$
scratch=$(mktemp -d)
seconds=4

at_end() {
    ip netns del "$a" 2>/dev/null || true
    ip netns del "$b" 2>/dev/null || true
    rm -rf "$scratch"
}
trap at_end EXIT

ip netns add "$a"
ip netns add "$b"
ip link add a0 netns "$a" type veth peer name b0 netns "$b"
for end in "$a a0 10.9.0.1" "$b b0 10.9.0.2"; do
    read -r host device address <<<"$end"
    ip -n "$host" addr add "$address/24" dev "$device"
    ip -n "$host" link set "$device" up
    ip -n "$host" link set lo up
done

# offloads on|off
offloads() {
    ip netns exec "$a" ethtool -K a0 tso "$1" gso "$1" gro "$1" >/dev/null
    ip netns exec "$b" ethtool -K b0 tso "$1" gso "$1" gro "$1" >/dev/null
}

# watched NAME COMMAND...: runs a stream beside the monitor, and leaves what both said in files.
watched() {
    local name=$1
    shift
    ip netns exec "$b" iperf3 -s -1 >/dev/null &
    local server=$!
    {
        TIMEFORMAT='%U %S'
        time timeout --signal INT $((seconds + 2)) ip netns exec "$b" "$@" \
            >"$scratch/said" 2>"$scratch/noted" || true
    } 2>"$scratch/time" &
    local monitor=$!
    sleep 1
    ip netns exec "$a" iperf3 -c 10.9.0.2 -t "$seconds" -b "${rate}M" -J >"$scratch/stream"
    wait "$server" "$monitor"
}

# line NAME PACKETS LOST
line() {
    jq -r --arg name "$1" --argjson packets "$2" --argjson lost "$3" --argjson seconds "$seconds" \
        --argjson monitor "$(awk '{ print $1 + $2 }' "$scratch/time")" '
        .end.sum_received as $got | ($got.bytes / 1e9) as $gb
        | [$name, ($got.bits_per_second / 1e6 | round), ($packets / $seconds | round), $lost,
           ($monitor / $gb * 1000 | round / 1000)] | @tsv' "$scratch/stream"
}

by_tcpdump() {
    watched "$1" tcpdump -ni b0 -s 128 -w /dev/null
    line "$1" "$(awk '/packets captured/ { print $1 }' "$scratch/noted")" \
        "$(awk '/dropped by kernel/ { print $1 }' "$scratch/noted")"
}

printf 'monitor\tMb/s\tpackets/s\tlost\ts/GB\n'
for rate; do
    for _ in 1 2 3; do
        offloads on
        by_tcpdump tcpdump
        watched grosso "$grosso" capture -i b0 -s 128 --wire -w /dev/null --json
        line grosso "$(jq .output.packets "$scratch/said")" "$(jq .drops "$scratch/said")"
        offloads off
        by_tcpdump off
    done
done
