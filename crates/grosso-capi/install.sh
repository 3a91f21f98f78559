#!/bin/sh
# Installs the C library: install.sh [--from FOLDER] PREFIX
#
# Without --from, the script first builds the library; this needs nothing but cargo. It installs include/grosso.h,
# lib/libgrosso.so and .a, and lib/pkgconfig/grosso.pc under PREFIX. If cargo-c is installed, `cargo cinstall -p
# grosso-capi` does the same.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
from=
if [ "${1:-}" = --from ]; then
    from=$2
    shift 2
fi
prefix=${1:?usage: install.sh [--from FOLDER] PREFIX}
if [ -z "$from" ]; then
    (cd "$here" && cargo build --profile dist --package grosso-capi)
    from=${CARGO_TARGET_DIR:-$here/../../target}/dist
fi
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' "$here/../../Cargo.toml")
mkdir -p "$prefix/include" "$prefix/lib/pkgconfig"
# pkg-config may run in a different directory.
prefix=$(cd "$prefix" && pwd)
cp "$here/include/grosso.h" "$prefix/include/grosso.h"
cp "$from/libgrosso_capi.a" "$prefix/lib/libgrosso.a"
cp "$from/libgrosso_capi.so" "$prefix/lib/libgrosso.so.$version"
ln -sf "libgrosso.so.$version" "$prefix/lib/libgrosso.so.0"
ln -sf libgrosso.so.0 "$prefix/lib/libgrosso.so"
sed "s|@prefix@|$prefix|; s|@version@|$version|" "$here/grosso.pc.in" > "$prefix/lib/pkgconfig/grosso.pc"
