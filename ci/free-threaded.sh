#!/usr/bin/env bash
# Reads a free-threaded CPython, whose objects are its own mimalloc's, and runs it under the preload: 3.13 of Debian's
# sources, which no release of Debian has built so. Takes about ten minutes on two cores the first time.
#
#   ci/free-threaded.sh
#
# Installs none: built and kept under target/pythons. Without the sources or a compiler it says so and ends with status 3.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=$PWD/target/pythons/free-threaded
python=$folder/bin/python3.13t
lacks() { echo "free-threaded.sh: $1" >&2; exit 3; }

if [[ ! -x $python ]]; then
    command -v cc >/dev/null && command -v make >/dev/null || lacks "needs cc and make"
    sources=$folder.sources
    rm -rf "${sources:?}" "${folder:?}"
    ci/sources.sh trixie "$sources" python3.13
    mkdir "$sources/build"
    tar -xf "$sources"/python3.13_*.orig.tar.xz -C "$sources/build" --strip-components=1
    (cd "$sources/build" && ./configure -q --disable-gil --without-ensurepip --disable-test-modules --prefix="$folder" &&
        make -s -j2 && make -s altinstall) >"$folder.log" 2>&1 || lacks "3.13 could not be built: $folder.log"
    rm -rf "$sources"
fi
"$python" --version

export EBB_TEST_PYTHON_FREE_THREADED=$python
"${CARGO:-cargo}" test -p ebb-inspect --test cpython own_mimalloc:: -- --ignored
"${CARGO:-cargo}" test -p ebbmalloc-cli --test why own_mimalloc -- --ignored
EBB_TEST_PYTHONS=$python "${CARGO:-cargo}" test -p ebbmalloc-c --test preload pythons::
