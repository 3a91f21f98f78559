#!/usr/bin/env bash
# Measures the CPU cost and the packet loss of a monitor at the receiver of one TCP stream. Needs root, and the tools
# ip, ethtool, iperf3, jq and tcpdump:
#
#   benches/monitor.sh GROSSO [MBIT...]   at each rate (default 500, 1000, 2000 and 4000), three alternating rounds of:
#                                         tcpdump  offloads on: the monitor receives superframes, not wire packets
#                                         grosso   offloads on: `grosso capture --wire` supplies wire packets
#                                         off      tcpdump with TSO, GSO and GRO off, as monitors recommend
#
#   benches/monitor.sh GROSSO highest     for each monitor, the highest rate without loss in two runs, to within 6 %
#
# Each line contains the achieved rate, the packets per second that the monitor received, the packets that it lost, and
# its CPU seconds per GB of payload. After the highest rate, the line states why the search ended: loss, or the maximum
# rate of the hosts.
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

# watched NAME COMMAND...: runs a stream while the monitor captures it, and writes the output of each to a file.
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

# by NAME: runs a monitor once at the rate.
by() {
    case $1 in
        tcpdump | grosso) offloads on ;;
        off) offloads off ;;
    esac
    if [ "$1" = grosso ]; then
        watched grosso "$grosso" capture -i b0 -s 128 --wire -w /dev/null --json
        line grosso "$(jq .output.packets "$scratch/said")" "$(jq .drops "$scratch/said")"
    else
        watched "$1" tcpdump -ni b0 -s 128 -w /dev/null
        line "$1" "$(awk '/packets captured/ { print $1 }' "$scratch/noted")" \
            "$(awk '/dropped by kernel/ { print $1 }' "$scratch/noted")"
    fi
}

# holds NAME: runs the monitor twice at the current rate. If it loses no packets, sets $best to the output line;
# otherwise sets $why to the reason and fails.
holds() {
    local run name got packets lost cost
    for run in 1 2; do
        run=$(by "$1")
        read -r name got packets lost cost <<<"$run"
        if [ "$lost" -gt 0 ]; then
            why="$lost lost at $got Mb/s"
            return 1
        elif [ "$got" -lt $((rate * 9 / 10)) ]; then
            why="the hosts carry $got Mb/s"
            return 1
        fi
    done
    best=$run
}

# highest NAME
highest() {
    local low=0 high=0
    rate=500 best='' why=''
    while [ "$high" = 0 ] || [ $((high - low)) -gt $((high / 16)) ]; do
        if holds "$1"; then low=$rate; else high=$rate; fi
        if [ "$high" = 0 ]; then rate=$((rate * 2)); else rate=$(((low + high) / 2)); fi
        [ "$rate" -gt 10 ] || break
    done
    printf '%s\t%s\n' "${best:-$1	0	0	0	}" "$why"
}

if [ "$1" = highest ]; then
    seconds=2
    printf 'monitor\tMb/s\tpackets/s\tlost\ts/GB\tended by\n'
    for monitor in tcpdump grosso off; do highest "$monitor"; done
    exit
fi
printf 'monitor\tMb/s\tpackets/s\tlost\ts/GB\n'
for rate; do
    for _ in 1 2 3; do
        for monitor in tcpdump grosso off; do by "$monitor"; done
    done
done
