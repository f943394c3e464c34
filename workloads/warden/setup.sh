#!/usr/bin/env bash
# Makes the load's environment and the object of the floor variant, and builds the service three times: target/warden-{system,ebbmalloc,jemalloc}.
#
#   ./setup.sh
#
# Needs cargo (Rust 1.88 or later) and a C compiler, which builds jemalloc.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
../../ci/python-env.sh .
../floor/build.sh

build() {
    local name=$1
    shift
    cargo build --release --locked --quiet --target-dir target "$@"
    # The three share a folder, so that what they depend on is built once.
    cp -f target/release/warden "target/warden-$name"
}

build system
build ebbmalloc --features ebbmalloc
build jemalloc --features jemalloc
