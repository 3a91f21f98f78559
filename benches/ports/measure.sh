#!/usr/bin/env bash
# Measures two endpoints of each program, in alternating runs, between two network namespaces. compare.sh runs this
# script in new namespaces. `measure.sh NAME...`: `$work/NAME/bin/$binary` is the program; the caller sets `$arguments`,
# `$rounds` and `$seconds`. A round measures one TCP connection in both directions, 100 connections, and pings without
# other traffic.
set -euo pipefail
contenders=("$@")
# Control sockets and namespace names belong to this mount namespace.
mount -t tmpfs none /run
mkdir -p /run/wireguard /run/netns
scratch=$(mktemp -d)
trap 'kill $(jobs -p) 2> /dev/null || true; rm -rf "$scratch"' EXIT

ip netns add left
ip netns add right
ip link add wire0 netns left mtu 1500 type veth peer name wire0 netns right
ip -n left address add 192.0.2.1/24 dev wire0
ip -n right address add 192.0.2.2/24 dev wire0
for side in left right; do
    ip -n $side link set lo up
    ip -n $side link set wire0 up
    openssl genpkey -algorithm X25519 -outform DER -out "$scratch/$side.key"
    openssl pkey -inform DER -in "$scratch/$side.key" -pubout -outform DER -out "$scratch/$side.pub"
done
until [ "$(ip -n left -j link show wire0 | jq -r '.[0].operstate')" = UP ]; do sleep 0.05; done

# Prints the last 32 bytes of a key, in hexadecimal.
key() {
    tail -c 32 "$1" | od -An -v -tx1 | tr -d ' \n'
}

# start NAME SIDE OTHER ADDRESS ENDPOINT: starts one endpoint, and configures it as `wg` would.
start() {
    local name=$1 side=$2 other=$3
    # shellcheck disable=SC2086 # Words of a command line.
    ip netns exec "$side" "$work/$name/bin/$binary" $arguments "wg-$side" > "$scratch/$side.log" 2>&1 &
    pids+=($!)
    until [ -S "/run/wireguard/wg-$side.sock" ] && ip -n "$side" link show "wg-$side" > /dev/null 2>&1; do
        kill -0 $! || { cat "$scratch/$side.log"; exit 1; }
        sleep 0.05
    done
    printf 'set=1\nprivate_key=%s\nlisten_port=51820\npublic_key=%s\nendpoint=%s:51820\nallowed_ip=10.98.0.0/24\n\n' \
        "$(key "$scratch/$side.key")" "$(key "$scratch/$other.pub")" "$5" |
        socat -t 5 - "UNIX-CONNECT:/run/wireguard/wg-$side.sock" | grep -q errno=0
    ip -n "$side" address add "$4/24" dev "wg-$side"
    ip -n "$side" link set "wg-$side" mtu 1420 up
}

# Prints the CPU seconds of both endpoints so far.
cpu() {
    local pid ticks=0
    for pid in "${pids[@]}"; do
        set -- $(sed 's/.*) //' "/proc/$pid/stat")
        ticks=$((ticks + ${12} + ${13}))
    done
    echo "scale=3; $ticks / $(getconf CLK_TCK)" | bc
}

# stream NAME KIND OPTION...: measures TCP with options of iperf3, and writes a row: throughput, CPU time, and
# retransmitted segments.
stream() {
    local name=$1 kind=$2 before after
    shift 2
    ip netns exec right iperf3 -s -1 > /dev/null &
    local server=$!
    until ip netns exec right ss -Hltn 'sport = :5201' | grep -q .; do sleep 0.05; done
    before=$(cpu)
    ip netns exec left iperf3 -c 10.98.0.2 -t "$seconds" -J "$@" > "$scratch/result.json"
    after=$(cpu)
    wait $server
    jq -r --arg name "$name" --arg kind "$kind" --argjson cpu "$(echo "$after - $before" | bc | sed 's/^\./0./')" '
        .end | [$name, $kind, .sum_received.bits_per_second / 1e9, $cpu * 1e9 / .sum_received.bytes,
            .sum_sent.retransmits] | @tsv' "$scratch/result.json" >> "$scratch/rows"
}

# pings NAME: writes a row with the median and the 99th percentile of the round-trip time in microseconds.
pings() {
    ip netns exec left ping -i 0.005 -c 400 10.98.0.2 | sed -n 's/.* time=\([0-9.]*\) ms/\1/p' | sort -g |
        awk -v name="$1" '{ v[NR] = 1000 * $1 }
            END { print name "\tping\t" v[int((NR + 1) / 2)] "\t" v[int(NR * 0.99)] "\t" NR }' >> "$scratch/rows"
}

measure() {
    local name=$1
    pids=()
    start "$name" left right 10.98.0.1 192.0.2.2
    start "$name" right left 10.98.0.2 192.0.2.1
    stream "$name" out
    stream "$name" back -R
    stream "$name" many -P 100
    pings "$name"
    kill "${pids[@]}"
    wait
}

for _ in $(seq "$rounds"); do
    for name in "${contenders[@]}"; do measure "$name"; done
done

# column NAME KIND NUMBER FORMAT: prints median, minimum and maximum.
column() {
    awk -v name="$1" -v kind="$2" -v column="$3" '$1 == name && $2 == kind { print $column }' "$scratch/rows" |
        sort -g | awk -v f="$4" '{ v[NR] = $1 } END { printf f " (" f "-" f ")", v[int((NR + 1) / 2)], v[1], v[NR] }'
}

printf '\nload average: %s; %s CPUs\n' "$(cut -d ' ' -f 1-3 /proc/loadavg)" "$(nproc)"
printf '%-9s %-15s %-18s %-18s %s\n' '' '' 'Gb/s' 'CPU s/GB, both' 'retransmitted'
for name in "${contenders[@]}"; do
    for kind in out back many; do
        printf '%-9s %-15s %-18s %-18s %s\n' "$name" $kind "$(column "$name" $kind 3 %.2f)" \
            "$(column "$name" $kind 4 %.2f)" "$(column "$name" $kind 5 %d)"
    done
    printf '%-9s %-15s p50 %s us, p99 %s us\n' "$name" ping "$(column "$name" ping 3 %.0f)" \
        "$(column "$name" ping 4 %.0f)"
done
