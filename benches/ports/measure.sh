#!/usr/bin/env bash
# Measures each program between two network namespaces, with one endpoint in each, in alternating runs. compare.sh runs
# this script in new namespaces. The file `$contenders` has a line for each program: its name, path and arguments, and
# the function that starts an endpoint. A round measures one TCP connection in both directions, 100 connections, and
# pings without other traffic.
set -euo pipefail
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

# Prints the last 32 bytes of a key in hexadecimal.
key() {
    tail -c 32 "$1" | od -An -v -tx1 | tr -d ' \n'
}

# userspace_api SIDE OTHER ADDRESS ENDPOINT: starts a WireGuard endpoint, and configures it as `wg` would.
userspace_api() {
    local side=$1 other=$2
    # shellcheck disable=SC2086 # Words of a command line.
    ip netns exec "$side" "$binary" $arguments "vpn-$side" > "$scratch/$side.log" 2>&1 &
    pids+=($!)
    until [ -S "/run/wireguard/vpn-$side.sock" ] && ip -n "$side" link show "vpn-$side" > "$scratch/link" 2>&1; do
        kill -0 $! || { cat "$scratch/$side.log"; exit 1; }
        sleep 0.05
    done
    printf 'set=1\nprivate_key=%s\nlisten_port=51820\npublic_key=%s\nendpoint=%s:51820\nallowed_ip=10.98.0.0/24\n\n' \
        "$(key "$scratch/$side.key")" "$(key "$scratch/$other.pub")" "$4" |
        socat -t 5 - "UNIX-CONNECT:/run/wireguard/vpn-$side.sock" | grep -q errno=0
    ip -n "$side" address add "$3/24" dev "vpn-$side"
    ip -n "$side" link set "vpn-$side" mtu 1420 up
}

# overlay SIDE OTHER ADDRESS ENDPOINT: starts a mycelium node, which derives its address from its key.
overlay() {
    local side=$1 host=$4
    # shellcheck disable=SC2086 # Words of a command line.
    ip netns exec "$side" "$binary" $arguments --key-file "$scratch/$side.node" --tun-name "vpn-$side" \
        --peers "tcp://$host:9651" > "$scratch/$side.log" 2>&1 &
    pids+=($!)
    until address_of "$side" | grep -q .; do
        kill -0 $! || { cat "$scratch/$side.log"; exit 1; }
        sleep 0.05
    done
}

# address_of SIDE: prints the address of mycelium's device.
address_of() {
    ip -n "$1" -j -6 address show dev "vpn-$1" scope global 2> "$scratch/link" |
        jq -r '.[0].addr_info[0].local // empty'
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

# stream NAME KIND OPTION...: measures TCP with these iperf3 options, and writes a row: throughput, CPU time, and
# retransmitted segments.
stream() {
    local name=$1 kind=$2 before after
    shift 2
    ip netns exec right iperf3 -s -1 > /dev/null &
    local server=$!
    until ip netns exec right ss -Hltn 'sport = :5201' | grep -q .; do sleep 0.05; done
    before=$(cpu)
    ip netns exec left iperf3 -c "$target" -t "$seconds" -J "$@" > "$scratch/result.json"
    after=$(cpu)
    wait $server
    jq -r --arg name "$name" --arg kind "$kind" --argjson cpu "$(echo "$after - $before" | bc | sed 's/^\./0./')" '
        .end | [$name, $kind, .sum_received.bits_per_second / 1e9, $cpu * 1e9 / .sum_received.bytes,
            .sum_sent.retransmits] | @tsv' "$scratch/result.json" >> "$scratch/rows"
}

# Waits until all connections of the last stream have sent their data and are closed.
settle() {
    local side
    for side in left right; do
        while ip netns exec $side ss -Htn exclude time-wait exclude listening | grep -q ":5201"; do sleep 0.1; done
    done
}

# pings NAME: writes a row with the median and the 99th percentile of the round-trip time in microseconds.
pings() {
    ip netns exec left ping -i 0.005 -c 400 "$target" | sed -n 's/.* time=\([0-9.]*\) ms/\1/p' | sort -g |
        awk -v name="$1" '{ v[NR] = 1000 * $1 }
            END { print name "\tping\t" v[int((NR + 1) / 2)] "\t" v[int(NR * 0.99)] "\t" NR }' >> "$scratch/rows"
}

# measure NAME BINARY ARGUMENTS START
measure() {
    local name=$1 binary=$2 arguments=$3
    target=10.98.0.2
    pids=()
    "$4" left right 10.98.0.1 192.0.2.2
    "$4" right left 10.98.0.2 192.0.2.1
    [ "$4" = userspace_api ] || target=$(address_of right)
    until ip netns exec left ping -c 1 -W 1 "$target" > "$scratch/first"; do
        kill -0 "${pids[@]}" || { cat "$scratch"/*.log; exit 1; }
    done
    stream "$name" out
    stream "$name" back -R
    stream "$name" many -P 100
    settle
    pings "$name"
    kill "${pids[@]}"
    wait
}

# column NAME KIND NUMBER FORMAT: prints median, minimum and maximum.
column() {
    awk -v name="$1" -v kind="$2" -v column="$3" '$1 == name && $2 == kind { print $column }' "$scratch/rows" |
        sort -g | awk -v f="$4" '{ v[NR] = $1 } END { printf f " (" f "-" f ")", v[int((NR + 1) / 2)], v[1], v[NR] }'
}

for _ in $(seq "$rounds"); do
    while IFS=$'\t' read -r -u 3 name binary arguments start; do
        measure "$name" "$binary" "$arguments" "$start"
    done 3< "$contenders"
done

printf '\nmedian (minimum-maximum) of %d rounds in %d seconds; load average %s; %s CPUs\n' \
    "$rounds" "$SECONDS" "$(cut -d ' ' -f 1-3 /proc/loadavg)" "$(nproc)"
printf '%-21s %-5s %-18s %-20s %s\n' '' '' 'Gb/s' 'CPU s/GB, both' 'retransmitted'
while IFS=$'\t' read -r name _; do
    for kind in out back many; do
        printf '%-21s %-5s %-18s %-20s %s\n' "$name" $kind "$(column "$name" $kind 3 %.2f)" \
            "$(column "$name" $kind 4 %.2f)" "$(column "$name" $kind 5 %d)"
    done
    printf '%-21s %-5s p50 %s us, p99 %s us\n' "$name" ping "$(column "$name" ping 3 %.0f)" \
        "$(column "$name" ping 4 %.0f)"
done < "$contenders"
