# shellcheck shell=bash disable=SC2034 # used where this is sourced
# Ports the TUN device of mycelium to grosso-tun, in place of its crate mycelium-tun. mycelium connects nodes over TCP.
version=0.7.10
binary=mycelium
arguments="--silent --disable-quic --disable-peer-discovery"
start=overlay
replaced=(mycelium-tun/src/{checksum,lib,linux,offload}.rs mycelium/src/tun/linux.rs)
others=("port grosso")

fetch() {
    [ -d "$work/checkout" ] || git -c advice.detachedHead=false clone --quiet --depth 1 --branch "v$version" \
        https://github.com/threefoldtech/mycelium "$work/checkout" 2> "$work/fetch.log" || return
    echo "$work/checkout"
}

# copy NAME: copies the source. The program in it is not a member of the workspace.
copy() {
    rm -rf "$work/source/$1" && mkdir -p "$work/source" && cp -a "$source" "$work/source/$1"
    printf '\n[workspace]\n' >> "$work/source/$1/myceliumd/Cargo.toml"
}

apply() {
    local tree=$work/source/$1
    copy "$1"
    patch --quiet -d "$tree" -p1 < "$here/$program/port.patch"
    cp "$here/$program/tun_$2.rs" "$tree/mycelium/src/tun/"
    rm -r "$tree/mycelium-tun" "$tree/mycelium/src/tun/linux.rs"
    printf '\n[target."cfg(target_os = \\"linux\\")".dependencies.grosso-tun]\npath = "%s"\nfeatures = ["tokio"]\n' \
        "$PWD/crates/grosso-tun" >> "$tree/mycelium/Cargo.toml"
}

# Builds without the link-time optimization that the program's profile enables, because it takes minutes.
compile() {
    [ "$1" != original ] || copy "$1"
    CARGO_PROFILE_RELEASE_LTO=false CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 cargo build --quiet --release \
        --manifest-path "$work/source/$1/myceliumd/Cargo.toml" --target-dir "$work/build"
    mkdir -p "$work/$1/bin" && cp "$work/build/release/$binary" "$work/$1/bin/"
}

# own_tests MANIFEST: runs mycelium's tests.
own_tests() {
    cargo test --quiet --manifest-path "${1%/*}/mycelium/Cargo.toml" --lib
}
