#!/usr/bin/env bash
# Measures one iperf3 connection through two endpoints of each program, in turn: compare.sh runs this in new namespaces.
# `measure.sh FOLDER ROUNDS SECONDS [THREADS]`: FOLDER has `NAME/bin/boringtun-cli` for each program.
set -euo pipefail
work=$1 rounds=$2 seconds=$3 threads=${4:-1}
contenders=()
for name in original port tun-rs; do
    [ ! -x "$work/$name/bin/boringtun-cli" ] || contenders+=("$name")
done
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
    ip netns exec "$side" "$work/$name/bin/boringtun-cli" --foreground --threads "$threads" \
        --disable-drop-privileges "wg-$side" > "$scratch/$side.log" 2>&1 &
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

measure() {
    local name=$1 before after
    pids=()
    start "$name" left right 10.98.0.1 192.0.2.2
    start "$name" right left 10.98.0.2 192.0.2.1
    ip netns exec right iperf3 -s -1 > /dev/null &
    until ip netns exec right ss -Hltn 'sport = :5201' | grep -q .; do sleep 0.05; done
    before=$(cpu)
    ip netns exec left iperf3 -c 10.98.0.2 -t "$seconds" -J > "$scratch/result.json"
    after=$(cpu)
    jq -r --arg name "$name" --argjson cpu "$(echo "$after - $before" | bc | sed 's/^\./0./')" '.end |
        [$name, .sum_received.bits_per_second / 1e9, $cpu * 1e9 / .sum_received.bytes, .sum_sent.retransmits] | @tsv' \
        "$scratch/result.json" | tee -a "$scratch/rows"
    kill "${pids[@]}"
    wait
}

for round in $(seq "$rounds"); do
    for name in "${contenders[@]}"; do measure "$name"; done
done
# column NAME NUMBER FORMAT: prints median, minimum and maximum.
column() {
    awk -v name="$1" -v column="$2" '$1 == name { print $column }' "$scratch/rows" | sort -g |
        awk -v f="$3" '{ v[NR] = $1 } END { printf f " (" f "-" f ")", v[int((NR + 1) / 2)], v[1], v[NR] }'
}

printf '\n%-10s %-20s %-22s %s\n' '' 'Gb/s' 'CPU s/GB, both ends' 'retransmits'
for name in "${contenders[@]}"; do
    printf '%-10s %-20s %-22s %s\n' "$name" "$(column "$name" 2 %.2f)" "$(column "$name" 3 %.2f)" \
        "$(column "$name" 4 %d)"
done
