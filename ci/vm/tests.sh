#!/usr/bin/env bash
# The tests that need cgroup version 2, swap or soft-dirty bits, built here and run on the kernel of ci/vm.sh.
#
#   ci/vm/tests.sh
#
# Status 3 where there is no virtual machine to be had.
set -euo pipefail
cd "$(dirname "$0")/../.."

# The path of a built test, from what cargo prints.
build() { "${CARGO:-cargo}" test --no-run "$@" 2>&1 | sed -n 's/^ *Executable .*(\(.*\))$/\1/p'; }

"${CARGO:-cargo}" build --release -p ebbmalloc-c -p ebbmalloc-cli
preload=$(realpath "$(build --release -p ebbmalloc-c --test preload)")
trim=$(realpath "$(build -p ebbmalloc-cli --test trim)")
look=$(realpath "$(build -p ebbmalloc-cli --test look)")
# The suite would build the library in the machine otherwise, which takes long.
EBB_TEST_PRELOAD=$(realpath "${CARGO_TARGET_DIR:-target}/release/libebbmalloc.so")
export EBB_TEST_PRELOAD
exec ci/vm.sh bash -euc '
    # The tests of `ebb compare` have times that an emulated processor does not keep; this is what they look at.
    target/release/ebb compare crates/ebb/tests/fixtures/bursts --memory-max 40M \
        --variants glibc,small=glibc+BUFFERS=500 -n 1 -o /tmp/limits >/tmp/told
    grep -E "Verdict: small stays within the limit .* where glibc is OOM-killed" /tmp/told
    target/release/ebb run -- sleep 600 &
    sleep 5
    target/release/ebb check --allocator ebbmalloc "$(pgrep -n sleep)"
    cd crates/ebbmalloc-c
    "$0" cgroup:: --skip only_grows --test-threads 1
    cd ../ebb
    "$1" page_cache --test-threads 1
    # What a look leaves as it was, where there is swap; the kernel has soft-dirty bits.
    swapon /dev/vdb
    EBB_TEST_EBB=../../target/release/ebb "$2" that_a_fork_shares pages_in_swap --test-threads 1' "$preload" "$trim" "$look"
