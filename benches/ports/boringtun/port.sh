# shellcheck shell=bash disable=SC2034 # used where this is sourced
# Ports the TUN device of boringtun-cli to grosso-tun and to tun-rs. The UDP sockets are unchanged.
library=boringtun
package=boringtun-cli
version=0.7.1
features='["device"]'
binary=boringtun-cli
arguments="--foreground --disable-drop-privileges --threads $threads"
# Each contender: name, device, and the crate that the device needs.
others=(
    "port tun_grosso.rs --path $PWD/crates/grosso-tun"
    "tun-rs tun_rs.rs tun-rs@=2.8.16 --no-default-features"
)

# place FROM TREE DEVICE: copies a device into the source.
place() {
    sed -i "s/tun_grosso\.rs/$3/" "$2/src/device/mod.rs"
    cp "$1/$3" "$2/src/device/"
}

# own_tests MANIFEST: runs boringtun's tests, including the ignored tests that need only a device.
own_tests() {
    cargo test --quiet --manifest-path "$1" --features device,mock-instant --lib
    cargo test --quiet --manifest-path "$1" --features device --lib -- --ignored \
        test_wireguard_get test_wireguard_set
}
