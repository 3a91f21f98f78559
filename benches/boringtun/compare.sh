#!/usr/bin/env bash
# Compares unmodified boringtun-cli with ports of its TUN side to grosso-tun and to tun-rs: builds all, tests the port
# with boringtun's own tests, and measures all in turn between two network namespaces.
# `benches/boringtun/compare.sh [ROUNDS [SECONDS [THREADS]]]`
#
# Cargo downloads the source from the registry. The patch and the devices in this directory are ours; the rest of the
# program, including its sockets, is unchanged. If something is not available, it is named and the comparison skipped.
set -euo pipefail
cd "$(dirname "$0")/../.."
rounds=${1:-5}
seconds=${2:-5}
threads=${3:-1}
version=0.7.1
here=$PWD/benches/boringtun
work=$PWD/target/ported

skip() {
    echo "skipped: boringtun-cli on grosso-tun: $1"
    exit 0
}

# Prints the directory into which Cargo unpacked boringtun's source.
source_of_boringtun() {
    rm -rf "$work/fetch" && mkdir -p "$work/fetch/src" && touch "$work/fetch/src/lib.rs"
    printf '[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2024"\n[workspace]\n[dependencies]\n' \
        > "$work/fetch/Cargo.toml"
    printf 'boringtun = { version = "=%s", features = ["device"] }\n' "$version" >> "$work/fetch/Cargo.toml"
    cargo metadata --quiet --format-version 1 --manifest-path "$work/fetch/Cargo.toml" |
        grep -o '"manifest_path":"[^"]*/boringtun-'"$version"'/Cargo.toml"' | head -n 1 | cut -d '"' -f 4
}

# port NAME DEVICE CRATE...: copies the source with another device, and adds the crate that the device needs.
port() {
    local tree=$work/source/$1 device=$2
    shift 2
    rm -rf "$tree" && mkdir -p "$work/source" && cp -r "${source%/Cargo.toml}" "$tree" && chmod -R u+w "$tree"
    patch --quiet -d "$tree" -p1 < "$here/port.patch"
    sed -i "s/tun_grosso\.rs/$device/" "$tree/src/device/mod.rs"
    cp "$here/$device" "$tree/src/device/"
    printf '\n[workspace]\n' >> "$tree/Cargo.toml"
    (cd "$tree" && cargo add --quiet "$@")
}

# build NAME [OPTION...]: builds the program in a directory of that name.
build() {
    local name=$1
    shift
    RUSTFLAGS='--cap-lints allow' cargo install --quiet boringtun-cli --version "=$version" --force \
        --root "$work/$name" --target-dir "$work/build" "$@" 2> "$work/$name.log" ||
        { tail -n 20 "$work/$name.log"; skip "$name cannot be built"; }
}

# Runs boringtun's tests, and those of its ignored tests that need only a device.
own_tests() {
    export RUSTFLAGS='--cap-lints allow' CARGO_TARGET_DIR=$work/build
    cargo test --quiet --manifest-path "$work/source/port/Cargo.toml" --features device,mock-instant --lib
    cargo test --quiet --manifest-path "$work/source/port/Cargo.toml" --features device --lib -- --ignored \
        test_wireguard_get test_wireguard_set
}

command -v patch > /dev/null || skip "patch is not installed"
source=$(source_of_boringtun) || skip "boringtun $version cannot be fetched"
port port tun_grosso.rs --path "$PWD/crates/grosso-tun"
port tun-rs tun_rs.rs tun-rs@=2.8.16 --no-default-features
build original
for name in port tun-rs; do
    build $name --config "patch.crates-io.boringtun.path='$work/source/$name'"
done
[ "$(id -u)" -eq 0 ] && [ -c /dev/net/tun ] || skip "its tests and the measurement want root and /dev/net/tun"
own_tests
for program in ip:iproute2 iperf3:iperf3 openssl:openssl socat:socat jq:jq; do
    command -v "${program%%:*}" > /dev/null || skip "the measurement wants ${program##*:}"
done
exec unshare --mount --net "$here/measure.sh" "$work" "$rounds" "$seconds" "$threads"
