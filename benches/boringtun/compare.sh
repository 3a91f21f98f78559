#!/usr/bin/env bash
# boringtun-cli as it is, with its TUN side on grosso-tun, and with it on tun-rs: all built, the port tested by
# boringtun's own tests, all measured in turn between two network namespaces.
# `benches/boringtun/compare.sh [ROUNDS [SECONDS [THREADS]]]`
#
# The source comes from the registry, through Cargo. Ours are the patch and the devices beside this file; the rest
# of the program, its sockets too, stays as it is. What cannot be had here is named, and skips the comparison.
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

# The folder of boringtun's source, where Cargo has put it.
source_of_boringtun() {
    rm -rf "$work/fetch" && mkdir -p "$work/fetch/src" && touch "$work/fetch/src/lib.rs"
    printf '[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2024"\n[workspace]\n[dependencies]\n' \
        > "$work/fetch/Cargo.toml"
    printf 'boringtun = { version = "=%s", features = ["device"] }\n' "$version" >> "$work/fetch/Cargo.toml"
    cargo metadata --quiet --format-version 1 --manifest-path "$work/fetch/Cargo.toml" |
        grep -o '"manifest_path":"[^"]*/boringtun-'"$version"'/Cargo.toml"' | head -n 1 | cut -d '"' -f 4
}

# port NAME DEVICE CRATE...: a copy of the source with another device, and the crate that this needs.
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

# build NAME [OPTION...]: the program, into a folder of that name.
build() {
    local name=$1
    shift
    RUSTFLAGS='--cap-lints allow' cargo install --quiet boringtun-cli --version "=$version" --force \
        --root "$work/$name" --target-dir "$work/build" "$@" 2> "$work/$name.log" ||
        { tail -n 20 "$work/$name.log"; skip "$name cannot be built"; }
}

# The tests of boringtun, and those of them that want a device and nothing else.
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
