# shellcheck shell=bash disable=SC2034 # used where this is sourced
# wireguard-go, for comparison. It has its own offloads. The version is the one in benches/peers/go.
binary=wireguard
arguments=-f

build_all() {
    command -v go > "$work/found" || skip "Go is not installed"
    version=$(sed -n 's|^\tgolang.zx2c4.com/wireguard ||p' benches/peers/go/go.mod)
    build original
}

compile() {
    GOBIN=$work/$1/bin go install "golang.zx2c4.com/wireguard@$version"
}
