#!/usr/bin/env bash
# The tests that need cgroup version 2, built here and run on the kernel of ci/vm.sh.
#
#   ci/vm/tests.sh
#
# Status 3 where there is no virtual machine to be had.
set -euo pipefail
cd "$(dirname "$0")/../.."

# The path of a built test, from what cargo prints.
build() { "${CARGO:-cargo}" test --no-run "$@" 2>&1 | sed -n 's/^ *Executable .*(\(.*\))$/\1/p'; }

"${CARGO:-cargo}" build --release -p ebbmalloc-c
preload=$(realpath "$(build --release -p ebbmalloc-c --test preload)")
trim=$(realpath "$(build -p ebb --test trim)")
# The suite would build the library in the machine otherwise, which takes long.
EBB_TEST_PRELOAD=$(realpath "${CARGO_TARGET_DIR:-target}/release/libebbmalloc.so")
export EBB_TEST_PRELOAD
exec ci/vm.sh bash -euc '
    cd crates/ebbmalloc-c
    "$0" cgroup:: --skip only_grows --test-threads 1
    cd ../ebb
    "$1" page_cache --test-threads 1' "$preload" "$trim"
