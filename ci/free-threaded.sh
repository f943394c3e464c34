#!/usr/bin/env bash
# Reads free-threaded CPythons, whose objects are their own mimalloc's, and runs them under the preload: 3.13 and 3.14 of
# Debian's sources, which no release of Debian has built so. Takes about ten minutes each on two cores the first time.
# Without the sources of 3.14 it goes on with 3.13.
#
#   ci/free-threaded.sh
#
# Installs none: built and kept under target/pythons. Without the sources or a compiler it says so and ends with status 3.
set -euo pipefail
cd "$(dirname "$0")/.."

lacks() { echo "free-threaded.sh: $1" >&2; exit 3; }

# build RELEASE VERSION: as target/pythons/free-threaded-VERSION; status 3 without the sources.
build() {
    local folder=$PWD/target/pythons/free-threaded-$2 sources=$PWD/target/pythons/free-threaded-$2.sources
    [[ ! -x $folder/bin/python$2t ]] || return 0
    command -v cc >/dev/null && command -v make >/dev/null || lacks "needs cc and make"
    rm -rf "${sources:?}" "${folder:?}"
    ci/sources.sh "$1" "$sources" "python$2" || return
    mkdir "$sources/build"
    tar -xf "$sources/python$2"_*.orig.tar.xz -C "$sources/build" --strip-components=1
    (cd "$sources/build" && ./configure -q --disable-gil --without-ensurepip --disable-test-modules --prefix="$folder" &&
        make -s -j2 && make -s altinstall) >"$folder.log" 2>&1 || lacks "$2 could not be built: $folder.log"
    rm -rf "$sources"
}

build trixie 3.13 || exit
pythons=$PWD/target/pythons/free-threaded-3.13/bin/python3.13t
if build sid 3.14; then
    pythons+=:$PWD/target/pythons/free-threaded-3.14/bin/python3.14t
fi

export EBB_TEST_PYTHONS_FREE_THREADED=$pythons
"${CARGO:-cargo}" test -p ebb-inspect --test cpython own_mimalloc:: -- --ignored
"${CARGO:-cargo}" test -p ebbmalloc-cli --test why own_mimalloc -- --ignored
EBB_TEST_PYTHONS=$pythons "${CARGO:-cargo}" test -p ebbmalloc-c --test preload pythons::
