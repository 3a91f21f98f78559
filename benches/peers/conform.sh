#!/bin/sh
# Tests the coalescers of DPDK, wireguard-go, its Tailscale fork, gVisor, tun-rs and mycelium with `grosso conform`.
# Needs jq, and for each program its toolchain: a C compiler with libdpdk, Go, or Rust:
#
#   benches/peers/conform.sh GROSSO [MYCELIUM]
#
# prints a row of docs/conformance.md for each of them, and fails if a known fault is not found. GROSSO is the program,
# and MYCELIUM is a checkout of mycelium, which is not in a registry. Programs that cannot be built are skipped with a
# note.
set -eu
grosso=$(realpath "$1")
mycelium=${2:+$(realpath "$2")}
cd "$(dirname "$0")"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# row NAME RULE PROGRAM...: prints the row of a program that is known to violate a rule.
row() {
    name=$1 rule=$2
    shift 2
    "$grosso" conform --json -- "$@" > "$scratch/report" || [ $? = 1 ]
    jq -r --arg name "$name" '
        [.rules[] | select(.wrong > 0) | "\(.rule) \(.wrong)"] as $wrong
        | "| \($name) | \(.vectors.right) | \(.vectors.wrong) | \(.joins.made) of \(.joins.possible) | \($wrong | join(", ")) |"
    ' "$scratch/report"
    jq -e --arg rule "$rule" '
        .vectors.left_out == 0 and any(.rules[]; .rule == $rule and .wrong > 0)
    ' "$scratch/report" > "$scratch/found" || { echo "$name: $rule was not found broken" >&2; exit 1; }
}

# Word splitting of the flags is intended.
if flags=$(pkg-config --cflags --libs libdpdk) &&
    cc -O3 -D_GNU_SOURCE -Wno-deprecated-declarations dpdk/peer.c $flags -o "$scratch/dpdk"; then
    version=$(pkg-config --modversion libdpdk)
    row "DPDK $version, burst" G13 "$scratch/dpdk" coalesce-burst conform
    row "DPDK $version, burst, ToS, TTL and checksums looked at before" G39 \
        "$scratch/dpdk" coalesce-burst-checks conform
else
    echo "skipped: DPDK cannot be built" >&2
fi
if go version > "$scratch/version" && (cd go && go build -trimpath -o "$scratch/go" .); then
    version_of() { sed -n "s|^\t$1 v0.0.0-\(........\).*-\(.......\).*|\1 \2|p" go/go.mod; }
    row "wireguard-go $(version_of golang.zx2c4.com/wireguard)" G14 "$scratch/go" wireguard conform
    row "Tailscale's fork $(version_of github.com/tailscale/wireguard-go)" G14 "$scratch/go" tailscale conform
    row "gVisor $(version_of gvisor.dev/gvisor)" G34 "$scratch/go" gvisor conform
else
    echo "skipped: wireguard-go, Tailscale's fork and gVisor cannot be built" >&2
fi
if cargo build --quiet --bin conform-tun-rs; then
    version=$(sed -n '/^name = "tun-rs"/{n;s/version = "\(.*\)"/\1/p}' Cargo.lock)
    row "tun-rs $version" G14 "${CARGO_TARGET_DIR:-target}/debug/conform-tun-rs"
else
    echo "skipped: tun-rs cannot be built" >&2
fi
if [ -n "$mycelium" ]; then
    cp conform/mycelium.rs conform/frames.rs "$mycelium/mycelium-tun/src/offload.rs" \
        "$mycelium/mycelium-tun/src/checksum.rs" "$scratch/"
    rustc --edition 2024 --cap-lints allow "$scratch/mycelium.rs" -o "$scratch/mycelium"
    version=$(sed -n '/^version = /{s/.*"\(.*\)"/\1/p;q}' "$mycelium/mycelium/Cargo.toml")
    row "mycelium $version" G51 "$scratch/mycelium"
else
    echo "skipped: mycelium was not passed" >&2
fi
