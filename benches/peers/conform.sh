#!/bin/sh
# Tests other coalescers, segmenters and reassemblers with `grosso conform`. Needs jq and the toolchain of each program:
# a C compiler with libdpdk, Go, or Rust:
#
#   benches/peers/conform.sh GROSSO [MYCELIUM]
#
# Prints the rows of docs/conformance.md, and fails if a known fault in a program is not found. GROSSO is the program,
# and MYCELIUM is a checkout of mycelium, which is not in any registry. The script notes and skips programs that cannot
# be built.
set -eu
grosso=$(realpath "$1")
mycelium=${2:+$(realpath "$2")}
cd "$(dirname "$0")"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# row TASK NAME RULE PROGRAM...: prints the row for a program that is known to violate a rule.
row() {
    task=$1 name=$2 rule=$3
    shift 3
    "$grosso" conform --task "$task" --json -- "$@" > "$scratch/report" || [ $? = 1 ]
    jq -r --arg task "$task" --arg name "$name" '
        ([.rules[] | select(.wrong > 0) | "\(.rule) \(.wrong)"] | join(", ")) as $wrong
        | (if $task == "coalesce" then "\(.joins.made) of \(.joins.possible) | " else "" end) as $joins
        | "| \($name) | \(.vectors.right) | \(.vectors.wrong) | \($joins)\($wrong) |"
    ' "$scratch/report"
    jq -e --arg rule "$rule" '
        .vectors.left_out == 0 and any(.rules[]; .rule == $rule and .wrong > 0)
    ' "$scratch/report" > "$scratch/found" || { echo "$name: $rule was not found broken" >&2; exit 1; }
}

# version_in_lock CRATE: prints the version of a dependency.
version_in_lock() {
    sed -n "/^name = \"$1\"/{n;s/version = \"\(.*\)\"/\1/p}" Cargo.lock
}

# source_of CRATE VERSION: prints the directory into which Cargo unpacks a crate. The crate need not be a dependency.
source_of() {
    cargo info --quiet "$1@$2" > "$scratch/info" &&
        find "${CARGO_HOME:-$HOME/.cargo}/registry/src" -maxdepth 2 -name "$1-$2" | grep .
}

# alone NAME MODULE...: compiles a program in this directory together with modules copied from a crate.
alone() {
    program=$1
    shift
    cp "conform/$program.rs" conform/frames.rs "$@" "$scratch/"
    rustc --edition 2024 --cap-lints allow "$scratch/$program.rs" -o "$scratch/$program"
}

# The flags must be split into words here.
if flags=$(pkg-config --cflags --libs libdpdk) &&
    cc -O3 -D_GNU_SOURCE -Wno-deprecated-declarations dpdk/peer.c $flags -o "$scratch/dpdk"; then
    version=$(pkg-config --modversion libdpdk)
    row coalesce "DPDK $version, burst" G13 "$scratch/dpdk" coalesce-burst conform
    row coalesce "DPDK $version, burst, ToS, TTL and checksums looked at before" G39 \
        "$scratch/dpdk" coalesce-burst-checks conform
else
    echo "skipped: DPDK cannot be built" >&2
fi
if go version > "$scratch/version" && (cd go && go build -trimpath -o "$scratch/go" .); then
    version_of() { sed -n "s|^\t$1 v0.0.0-\(........\).*-\(.......\).*|\1 \2|p" go/go.mod; }
    row coalesce "wireguard-go $(version_of golang.zx2c4.com/wireguard)" G14 "$scratch/go" wireguard conform
    row coalesce "Tailscale's fork $(version_of github.com/tailscale/wireguard-go)" G14 "$scratch/go" tailscale conform
    row coalesce "gVisor $(version_of gvisor.dev/gvisor)" G34 "$scratch/go" gvisor conform
else
    echo "skipped: wireguard-go, Tailscale's fork and gVisor cannot be built" >&2
fi
built=${CARGO_TARGET_DIR:-target}/debug
if cargo build --quiet --bin conform-tun-rs --bin conform-quincy-tun --bin conform-etherparse \
    --bin conform-smoltcp; then
    for crate in tun-rs quincy-tun; do
        name="$crate $(version_in_lock "$crate")"
        row coalesce "$name" G14 "$built/conform-$crate"
        row segment "$name" S40 "$built/conform-$crate" segment
    done
    for crate in etherparse smoltcp; do
        row reassemble "$crate $(version_in_lock "$crate")" F14 "$built/conform-$crate"
    done
else
    echo "skipped: tun-rs, quincy-tun, etherparse and smoltcp cannot be built" >&2
fi
yip=0.1.0
if source=$(source_of yip-io "$yip") && alone yip "$source/src/tun_offload.rs"; then
    row coalesce "yip-io $yip" G51 "$scratch/yip"
    row segment "yip-io $yip" S20 "$scratch/yip" segment
else
    echo "skipped: yip-io cannot be built" >&2
fi
if [ -n "$mycelium" ]; then
    alone mycelium "$mycelium/mycelium-tun/src/offload.rs" "$mycelium/mycelium-tun/src/checksum.rs"
    version=$(sed -n '/^version = /{s/.*"\(.*\)"/\1/p;q}' "$mycelium/mycelium/Cargo.toml")
    row coalesce "mycelium $version" G51 "$scratch/mycelium"
    row segment "mycelium $version" S40 "$scratch/mycelium" segment
else
    echo "skipped: mycelium was not passed" >&2
fi
