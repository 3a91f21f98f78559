# shellcheck shell=bash disable=SC2034 # used where this is sourced
# Ports the TUN device and the UDP sockets of boringtun-cli to grosso-tun, and to tun-rs with quinn-udp.
library=boringtun
package=boringtun-cli
version=0.7.1
features='["device"]'
binary=boringtun-cli
arguments="--foreground --disable-drop-privileges --threads $threads"
replaced=(src/device/tun_linux.rs)
# Each contender: name, files, and the crates that they need.
others=(
    "port grosso --path:$PWD/crates/grosso-tun"
    "tun-rs quinn tun-rs@=2.8.16:--no-default-features quinn-udp@0.5:--no-default-features"
)

# place FROM TREE FILES: copies the device and the socket into the source.
place() {
    local tun=tun_grosso.rs
    [ "$3" = grosso ] || tun=tun_rs.rs
    sed -i "s/tun_grosso\.rs/$tun/; s/udp_grosso/udp_$3/" "$2/src/device/mod.rs"
    cp "$1/$tun" "$1/udp_$3.rs" "$2/src/device/"
}

# own_tests MANIFEST: runs boringtun's tests, including those ignored tests that need only a TUN device.
own_tests() {
    cargo test --quiet --manifest-path "$1" --features device,mock-instant --lib
    cargo test --quiet --manifest-path "$1" --features device --lib -- --ignored \
        test_wireguard_get test_wireguard_set
}
