#!/usr/bin/env bash
# Reads a free-threaded CPython, whose objects are its own mimalloc's: 3.13 of Debian's sources, which no release of Debian
# has built so. Takes about ten minutes on two cores the first time.
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
    command -v apt-get >/dev/null && command -v cc >/dev/null && command -v make >/dev/null ||
        lacks "needs apt-get, cc and make"
    sources=$folder.sources
    rm -rf "${sources:?}" "${folder:?}"
    mkdir -p "$sources"/{state/lists/partial,cache/archives/partial,build}
    # From where this machine has its own packages.
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Identifier: Packages' 'Label: Debian' | head -1)
    [[ $mirror ]] || lacks "no archive of Debian is among apt's sources"
    echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie main" \
        >"$sources/sources.list"
    options=(-qq -o "Dir::State=$sources/state" -o "Dir::Cache=$sources/cache" -o Dir::State::status=/dev/null
        -o "Dir::Etc::sourcelist=$sources/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o Acquire::Languages=none -o APT::Sandbox::User=root -o APT::Update::Error-Mode=any)
    (cd "$sources" && apt-get "${options[@]}" update &&
        apt-get "${options[@]}" source --download-only --tar-only python3.13) || lacks "no sources of 3.13; is there a network?"
    tar -xf "$sources"/python3.13_*.orig.tar.xz -C "$sources/build" --strip-components=1
    (cd "$sources/build" && ./configure -q --disable-gil --without-ensurepip --disable-test-modules --prefix="$folder" &&
        make -s -j2 && make -s altinstall) >"$folder.log" 2>&1 || lacks "3.13 could not be built: $folder.log"
    rm -rf "$sources"
fi
"$python" --version

export EBB_TEST_PYTHON_FREE_THREADED=$python
"${CARGO:-cargo}" test -p ebb-inspect --test cpython own_mimalloc:: -- --ignored
"${CARGO:-cargo}" test -p ebb --test why own_mimalloc:: -- --ignored
