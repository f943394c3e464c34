#!/usr/bin/env bash
# Installs ebbmalloc in a folder of its own as the jemalloc that programs are linked to.
#
#   ci/install-compat.sh PREFIX [BUILT]
#
#   PREFIX/lib/libjemalloc.so.2         with this soname: LD_LIBRARY_PATH=PREFIX/lib, an rpath or ldconfig
#   PREFIX/lib/libjemalloc.so, .a       for -ljemalloc
#   PREFIX/lib/libebbmalloc.so{,.0}, .a the same under its own name
#   PREFIX/lib/pkgconfig                jemalloc.pc, ebbmalloc.pc
#   PREFIX/include                      jemalloc/jemalloc.h, ebbmalloc.h
#
# BUILT holds what `make build` made (target/release). DESTDIR goes before PREFIX for packages.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
prefix=${1:?where to install: ci/install-compat.sh PREFIX [BUILT]}
built=${2:-$here/target/release}
[[ $prefix == /* ]] || prefix=$PWD/$prefix
root=${DESTDIR:-}$prefix
headers=$here/crates/ebbmalloc-c/include
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$here/Cargo.toml" | head -n 1)

install -d "$root/lib/pkgconfig" "$root/include/jemalloc"
install -m 755 "$built/libjemalloc.so" "$root/lib/libjemalloc.so.2"
install -m 755 "$built/libebbmalloc.so" "$root/lib/libebbmalloc.so"
install -m 644 "$built/libebbmalloc.a" "$root/lib/libebbmalloc.a"
ln -sfn libebbmalloc.so "$root/lib/libebbmalloc.so.0"
ln -sfn libjemalloc.so.2 "$root/lib/libjemalloc.so"
ln -sfn libebbmalloc.a "$root/lib/libjemalloc.a"
install -m 644 "$headers/ebbmalloc.h" "$root/include/ebbmalloc.h"
install -m 644 "$headers/jemalloc/jemalloc.h" "$root/include/jemalloc/jemalloc.h"

# describe NAME VERSION LIBRARY: a pkg-config file.
describe() {
    cat >"$root/lib/pkgconfig/$1.pc" <<END
prefix=$prefix
libdir=\${prefix}/lib
includedir=\${prefix}/include

Name: $1
Description: A memory allocator that gives memory back by itself
Version: $2
Cflags: -I\${includedir}
Libs: -L\${libdir} -l$3
Libs.private: -pthread
END
}
describe ebbmalloc "$version" ebbmalloc
# The version is that of jemalloc's interface: build scripts ask for it.
describe jemalloc 5.3.0 jemalloc
