# shellcheck shell=bash
# The crates that other programs link, dependencies first. The scripts that package and compare them source this file.
# shellcheck disable=SC2034 # The scripts that source this file use it.
linked=(
    grosso-checksum grosso-wire grosso grosso-capture grosso-report grosso-sys grosso-vhost grosso-io grosso-analysis
    grosso-conform grosso-daemon grosso-tun
)
