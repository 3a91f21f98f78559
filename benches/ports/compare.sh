#!/usr/bin/env bash
# Compares VPN programs with versions of them that use grosso-tun (ports). Fetches the sources, applies the patches,
# builds all variants, and measures them in alternating runs between two network namespaces.
#
#   benches/ports/compare.sh [-t] [-r ROUNDS] [-s SECONDS] [-j THREADS] [PROGRAM...]
#
# PROGRAM is a directory next to this script; the default is all of them. -t also runs the programs' own tests; -r 0
# only builds. Cargo, Go and git download the sources. Apart from our patches and devices, which are in those
# directories, each program is unchanged. If a requirement is missing, the script names it and skips the program.
set -euo pipefail
cd "$(dirname "$0")/../.."
here=$PWD/benches/ports
rounds=5 seconds=5 threads=1 tests=
usage() {
    sed -n '5s/^# *//p' "$here/compare.sh" >&2
    exit 2
}
while getopts tr:s:j: option; do
    case $option in
        t) tests=yes ;;
        r) rounds=$OPTARG ;;
        s) seconds=$OPTARG ;;
        j) threads=$OPTARG ;;
        *) usage ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || set -- boringtun gotatun mycelium wireguard-go
for program in "$@"; do [ -f "$here/$program/port.sh" ] || usage; done

# skip WHY: skips a program, and prints the reason.
skip() {
    echo "skipped: $program: $1"
    exit 0
}

# Fetches the source of the library from Cargo's registry, and prints its directory.
fetch() {
    rm -rf "$work/fetch" && mkdir -p "$work/fetch/src" && touch "$work/fetch/src/lib.rs"
    printf '[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2024"\n[workspace]\n[dependencies]\n' \
        > "$work/fetch/Cargo.toml"
    printf '%s = { version = "=%s", features = %s }\n' "$library" "$version" "$features" >> "$work/fetch/Cargo.toml"
    cargo metadata --quiet --format-version 1 --manifest-path "$work/fetch/Cargo.toml" |
        grep -o '"manifest_path":"[^"]*/'"$library-$version"'/Cargo.toml"' | head -n 1 | cut -d '"' -f 4 |
        xargs dirname
}

# apply NAME FILE CRATE...: copies the source, replaces its devices, and adds the crates that the new devices need.
apply() {
    local tree=$work/source/$1 file=$2
    shift 2
    rm -rf "$tree" && mkdir -p "$work/source" && cp -r "$source" "$tree" && chmod -R u+w "$tree"
    patch --quiet -d "$tree" -p1 < "$here/$program/port.patch"
    place "$here/$program" "$tree" "$file"
    printf '\n[workspace]\n' >> "$tree/Cargo.toml"
    # Each crate is one argument, in which colons separate the arguments of `cargo add`.
    for crate in "$@"; do (cd "$tree" && IFS=: && cargo add --quiet $crate); done
}

# compile NAME: builds the program with the variant NAME of the library's source; `original` is the unpatched library.
compile() {
    local patched=()
    [ "$1" = original ] || patched=(--config "patch.crates-io.$library.path='$work/source/$1'")
    cargo install --quiet "$package" --version "=$version" --force --root "$work/$1" --target-dir "$work/build" \
        "${patched[@]}"
}

# build NAME: builds a program in the directory NAME, and adds it to the contenders.
build() {
    RUSTFLAGS='--cap-lints allow' compile "$1" 2> "$work/$1.log" ||
        { tail -n 20 "$work/$1.log"; skip "$1 cannot be built"; }
    printf '%s\t%s\t%s\t%s\n' "$program/$1" "$work/$1/bin/$binary" "$arguments" "${start:-userspace_api}" \
        >> "$contenders"
}

# Prints the size of the port in lines: the patch, the new files, and the files that they replace.
count_lines() {
    local patch=$here/$program/port.patch
    printf '%s: the patch adds %d lines and removes %d; the new files have %d lines' "$program" \
        "$(grep -c '^+\([^+]\|$\)' "$patch")" "$(grep -c '^-\([^-]\|$\)' "$patch")" \
        "$(cat "$here/$program"/*_grosso.rs | wc -l)"
    printf ', and replace %d (%d without comments and tests)\n' \
        "$(cd "$source" && cat "${replaced[@]}" | wc -l)" \
        "$(cd "$source" && for file in "${replaced[@]}"; do sed '/^#\[cfg(test)\]/,$d' "$file"; done |
            grep -cv '^ *\(//.*\)\?$')"
}

# Builds the original and its ports. A program's port.sh may override this function, or functions that it calls.
build_all() {
    command -v patch > "$work/found" || skip "patch is not installed"
    source=$(fetch) && [ -d "$source" ] || skip "$library $version cannot be fetched"
    count_lines
    build original
    for other in "${others[@]}"; do
        # shellcheck disable=SC2086 # Words of a command line.
        apply $other
        build "${other%% *}"
    done
    [ -n "$tests" ] || return 0
    RUSTFLAGS='--cap-lints allow' CARGO_TARGET_DIR=$work/build own_tests "$work/source/port/Cargo.toml"
}

contenders=$PWD/target/ported/contenders
mkdir -p target/ported && : > "$contenders"
for program in "$@"; do
    work=$PWD/target/ported/$program
    mkdir -p "$work"
    (
        # shellcheck source=/dev/null
        . "$here/$program/port.sh"
        build_all
    )
done
[ -s "$contenders" ] && [ "$rounds" -gt 0 ] || exit 0
program=measurement
[ "$(id -u)" -eq 0 ] && [ -c /dev/net/tun ] || skip "root and /dev/net/tun are required"
for tool in ip:iproute2 iperf3:iperf3 openssl:openssl socat:socat jq:jq ping:iputils-ping bc:bc; do
    command -v "${tool%%:*}" > target/ported/found || skip "${tool##*:} is not installed"
done
export contenders rounds seconds
exec unshare --mount --net "$here/measure.sh"
