#!/usr/bin/env bash
# Compares a VPN with its port to grosso-tun: fetches the source, applies the patch, builds both, runs their own
# tests, and measures the programs in turn between two network namespaces.
# `benches/ports/compare.sh boringtun|gotatun [ROUNDS [SECONDS [THREADS]]]`
#
# Cargo downloads the source from the registry. The patch and the devices in the directories are ours; the rest of the
# program is unchanged. If a part is not available, it is named, and the comparison is skipped.
set -euo pipefail
cd "$(dirname "$0")/../.."
port=${1:?usage: benches/ports/compare.sh boringtun|gotatun [ROUNDS [SECONDS [THREADS]]]}
rounds=${2:-5}
seconds=${3:-5}
threads=${4:-1}
here=$PWD/benches/ports
work=$PWD/target/ported/$port
mkdir -p "$work"

skip() {
    echo "skipped: $port on grosso-tun: $1"
    exit 0
}

# Sets the names, the version, and the arguments of the program.
# shellcheck source=/dev/null
. "$here/$port/port.sh"

# Prints the directory into which Cargo unpacked the source of the library.
source_of_library() {
    rm -rf "$work/fetch" && mkdir -p "$work/fetch/src" && touch "$work/fetch/src/lib.rs"
    printf '[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2024"\n[workspace]\n[dependencies]\n' \
        > "$work/fetch/Cargo.toml"
    printf '%s = { version = "=%s", features = %s }\n' "$library" "$version" "$features" >> "$work/fetch/Cargo.toml"
    cargo metadata --quiet --format-version 1 --manifest-path "$work/fetch/Cargo.toml" |
        grep -o '"manifest_path":"[^"]*/'"$library-$version"'/Cargo.toml"' | head -n 1 | cut -d '"' -f 4
}

# apply NAME DEVICE CRATE...: copies the source with another device, and adds the crate that the device needs.
apply() {
    local tree=$work/source/$1 device=$2
    shift 2
    rm -rf "$tree" && mkdir -p "$work/source" && cp -r "${source%/Cargo.toml}" "$tree" && chmod -R u+w "$tree"
    patch --quiet -d "$tree" -p1 < "$here/$port/port.patch"
    place "$here/$port" "$tree" "$device"
    printf '\n[workspace]\n' >> "$tree/Cargo.toml"
    (cd "$tree" && cargo add --quiet "$@")
}

# build NAME [OPTION...]: builds the program in a directory of that name.
build() {
    local name=$1
    shift
    RUSTFLAGS='--cap-lints allow' cargo install --quiet "$package" --version "=$version" --force \
        --root "$work/$name" --target-dir "$work/build" "$@" 2> "$work/$name.log" ||
        { tail -n 20 "$work/$name.log"; skip "$name cannot be built"; }
}

# Prints the lines of the port: those of the patch, and the device.
count_lines() {
    local patch=$here/$port/port.patch
    printf '%s: the patch adds %d lines and removes %d; the new files have %d\n' "$port" \
        "$(grep -c '^+\([^+]\|$\)' "$patch")" "$(grep -c '^-\([^-]\|$\)' "$patch")" \
        "$(cat "$here/$port"/*_grosso.rs | wc -l)"
}

command -v patch > /dev/null || skip "patch is not installed"
source=$(source_of_library) || skip "$library $version cannot be fetched"
count_lines
build original
contenders=(original)
for device in "${others[@]}"; do
    read -r name file crate <<< "$device"
    # shellcheck disable=SC2086 # Words of a command line.
    apply "$name" "$file" $crate
    build "$name" --config "patch.crates-io.$library.path='$work/source/$name'"
    contenders+=("$name")
done
[ "$(id -u)" -eq 0 ] && [ -c /dev/net/tun ] || skip "its tests and the measurement want root and /dev/net/tun"
(
    export RUSTFLAGS='--cap-lints allow' CARGO_TARGET_DIR=$work/build
    own_tests "$work/source/port/Cargo.toml"
)
for tool in ip:iproute2 iperf3:iperf3 openssl:openssl socat:socat jq:jq ping:iputils-ping; do
    command -v "${tool%%:*}" > /dev/null || skip "the measurement wants ${tool##*:}"
done
export work rounds seconds binary arguments
exec unshare --mount --net "$here/measure.sh" "${contenders[@]}"
