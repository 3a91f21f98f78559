# shellcheck shell=bash disable=SC2034 # used where this is sourced
# Ports the TUN device and the UDP sockets of gotatun to grosso-tun.
library=gotatun
package=gotatun-cli
version=0.8.1
features='["device", "tun"]'
binary=gotatun
arguments="--foreground --disable-drop-privileges"
replaced=(src/tun/tun_async_device.rs src/udp/socket/linux.rs)
# For each contender: its name, its files, and the crates that they need.
others=("port grosso --path:$PWD/crates/grosso-tun:--features:tokio")

# place FROM TREE FILES: copies the device and the socket into the source tree.
place() {
    cp "$1/tun_$3.rs" "$2/src/tun/"
    cp "$1/udp_$3.rs" "$2/src/udp/socket/"
}

# own_tests MANIFEST: runs gotatun's tests.
own_tests() {
    # The release profile reuses the cryptography crates that are already compiled.
    cargo test --quiet --release --manifest-path "$1" --features device,tun --lib
}
