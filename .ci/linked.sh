# shellcheck shell=bash
# The crates that others link, dependencies first: sourced by the scripts that package and compare them.
# shellcheck disable=SC2034 # used where this is sourced
linked=(
    grosso-checksum grosso-wire grosso grosso-capture grosso-report grosso-sys grosso-vhost grosso-io grosso-analysis
    grosso-conform grosso-daemon grosso-tun
)
