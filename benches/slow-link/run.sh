#!/bin/sh
# Measures one TCP stream from a TAP through `grosso bridge` to an interface behind a slow link, and the same stream
# over an unshaped link, paced by the sender to the same rate. Needs root or user namespaces, and the tools ip, tc,
# ethtool, iperf3, jq and strace:
#
#   benches/slow-link/run.sh GROSSO [OPTION...]      the options are those of `grosso bridge`
#
# Environment: RATE is the rate in Mb/s (default 300). SECONDS_EACH is the duration of each run in seconds (default 8).
# LIMIT is the number of bytes that the shaper queues (default 4000000: the send buffer fills first; with 60000 the
# shaper drops packets first, which causes ENOBUFS). BURST is the burst of the shaper (default 256k: superframes pass
# unsplit; with 64k the kernel splits them, and the receiver acknowledges every second packet, so the path also carries
# these acknowledgments). TSO=on leaves segmentation to the device; by default (off), the kernel segments. Superframes
# are sent through a socket (sendmmsg), and single packets through the transmit ring (sendto). ROOTLESS=1 runs
# everything in a new user namespace.
#
# Prints one line per run with the throughput and the CPU seconds per GB that the path used, as counted by the scheduler
# without strace. Then prints one line for the shaped run under strace: the number of sends, how many of them returned
# EAGAIN and ENOBUFS, and the number of ppoll calls.
set -eu
if [ "${ROOTLESS:-}" = 1 ]; then
    ROOTLESS=inside exec unshare -Urnm sh -c 'mount -t tmpfs tmpfs /run && exec "$@"' sh "$0" "$@"
fi
grosso=$1
shift
rate=${RATE:-300} seconds=${SECONDS_EACH:-8} limit=${LIMIT:-4000000} burst=${BURST:-256k}
a=slow-a-$$ b=slow-b-$$ g=slow-g-$$
scratch=$(mktemp -d)
running=

clean() {
    for process in $running; do kill "$process" 2> /dev/null || true; done
    running=
    wait
    for host in $a $b $g; do ip netns del "$host" 2> /dev/null || true; done
}
trap 'clean; rm -rf "$scratch"' EXIT

# lay: creates three hosts. The path runs on host g, from the TAP of host b to host a.
lay() {
    clean
    for host in $a $b $g; do
        ip netns add "$host"
        ip -n "$host" link set lo up
        ip netns exec "$host" sysctl -qw net.ipv6.conf.all.disable_ipv6=1
    done
    ip -n "$g" link add w0 type veth peer name w1 netns "$a"
    ip -n "$a" addr add 10.9.0.1/24 dev w1
    ip -n "$a" link set w1 up
    ip -n "$g" link set w0 up
    ip netns exec "$g" ethtool -K w0 tso "${TSO:-off}" > /dev/null
}

# start COMMAND...: starts the path, and moves its TAP to host b.
start() {
    ip netns exec "$g" "$@" > "$scratch/path" 2>&1 &
    path=$!
    running="$running $path"
    until ip -n "$g" link show t0 > /dev/null 2>&1; do
        kill -0 "$path" || { cat "$scratch/path"; exit 1; }
        sleep 0.05
    done
    ip -n "$g" link set t0 netns "$b"
    ip -n "$b" addr add 10.9.0.2/24 dev t0
    ip -n "$b" link set t0 up
    ip netns exec "$a" iperf3 -s > /dev/null 2>&1 &
    running="$running $!"
    until ip netns exec "$a" ss -tln | grep -q :5201; do sleep 0.05; done
}

shape() {
    ip netns exec "$g" tc qdisc add dev w0 root tbf rate "${rate}mbit" burst "$burst" limit "$limit"
}

# spent: prints the CPU time used by all threads of the path, in nanoseconds.
spent() {
    cat /proc/"$path"/task/*/schedstat | awk '{ sum += $1 } END { printf "%.0f\n", sum }'
}

received() {
    ip -n "$a" -s -j link show w1 | jq '.[0].stats64.rx.bytes'
}

# stream OPTION...: runs one stream from b to a.
stream() {
    ip netns exec "$b" iperf3 -c 10.9.0.1 -t "$1" ${2:+-b "$2"} > "$scratch/iperf3" 2>&1 ||
        { cat "$scratch/iperf3"; exit 1; }
}

# cost NAME [BITRATE]: prints the line for one run.
cost() {
    before=$(received) cpu=$(spent)
    stream "$seconds" "${2:-}"
    bytes=$(($(received) - before)) cpu=$(($(spent) - cpu))
    echo "$1 $bytes $cpu" | awk -v seconds="$seconds" \
        '{ printf "%-9s %.0f Mb/s, %.2f CPU-s/GB\n", $1, $2 * 8e-6 / seconds, $3 / $2 }'
}

lay
start "$grosso" bridge tap:t0 w0 "$@"
cost unshaped "${rate}M"
lay
shape
start "$grosso" bridge tap:t0 w0 "$@"
cost shaped
lay
shape
start strace -f -qq -e signal=none -e trace=sendto,sendmsg,sendmmsg,ppoll -o "$scratch/calls" \
    "$grosso" bridge tap:t0 w0 "$@"
stream 3
# strace ends when its program ends, and ignores signals.
kill $(cat /proc/"$path"/task/"$path"/children)
wait "$path" || true
sends() {
    grep -E 'send(to|msg|mmsg)(\(| resumed)' "$scratch/calls" | grep -c "$1" || true
}
all=$(sends ' = ') later=$(sends EAGAIN) full=$(sends ENOBUFS) polls=$(grep -c 'ppoll' "$scratch/calls" || true)
echo "$all $later $full $polls" |
    awk '{ printf "calls     %d sends, EAGAIN %d (%.2f %%), ENOBUFS %d (%.2f %%), %d ppoll\n", $1, $2, $2 * 100 / $1,
        $3, $3 * 100 / $1, $4 }'
