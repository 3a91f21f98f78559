# shellcheck shell=bash disable=SC2034 # used where this is sourced
# gotatun: its TUN device and its UDP sockets on grosso-tun.
library=gotatun
package=gotatun-cli
version=0.8.1
features='["device", "tun"]'
binary=gotatun
arguments="--foreground --disable-drop-privileges"
# Each contender: name, device, and the crate that the device needs.
others=("port tun_grosso.rs --path $PWD/crates/grosso-tun --features tokio")

# place FROM TREE DEVICE: puts the device and the socket into the source.
place() {
    cp "$1/$3" "$2/src/tun/"
    cp "$1/udp_grosso.rs" "$2/src/udp/socket/"
}

# own_tests MANIFEST: runs gotatun's tests.
own_tests() {
    # Optimized, so that the compiled cryptography is reused.
    cargo test --quiet --release --manifest-path "$1" --features device,tun --lib
}
