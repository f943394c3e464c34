#!/bin/sh
# The preload object for aarch64 under small C programs of the preload suite, by emulation of the user's
# side (qemu-user): system calls go to this machine's kernel. Arguments choose programs.
#
# Debian: qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross; rustup target add
# aarch64-unknown-linux-gnu. On a machine without one of them it says so and ends with status 3.
set -eu
cd "$(dirname "$0")/.."
root=${AARCH64_ROOT:-/usr/aarch64-linux-gnu}
for tool in qemu-aarch64 aarch64-linux-gnu-gcc; do
    command -v $tool >/dev/null || { echo "aarch64.sh: $tool is not installed" >&2; exit 3; }
done
target=aarch64-unknown-linux-gnu
if ! [ -d "$(rustc --print target-libdir --target $target)" ]; then
    rustup target add $target || { echo "aarch64.sh: no Rust library for $target" >&2; exit 3; }
fi
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}"
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
# The emulator keeps a word for each page of address space: a limit keeps the reservations small.
ulimit -v 33554432
cargo build --quiet --release -p ebbmalloc-c --target $target
library=$(realpath "$CARGO_TARGET_DIR/$target/release/libebbmalloc.so")
work=$(mktemp -d)
options=
trap 'rm -rf "$work"' EXIT
failures=0

# Weak names may stay undefined; anything else would be looked for in a libc that may not have it.
if aarch64-linux-gnu-nm -D "$library" | grep ' U '; then
    echo "FAILED    the library wants these names"
    failures=$((failures + 1))
fi

compile() { # OUT NAME OPTION...
    out=$1 name=$2
    shift 2
    aarch64-linux-gnu-gcc -O1 -g -pthread -w -fno-builtin -o "$out" "crates/ebbmalloc-c/tests/programs/$name.c" "$@"
}

run() {
    program=$1
    shift
    # shellcheck disable=SC2086
    compile "$work/$program" "$program" $options
    status=0
    timeout 300 qemu-aarch64 -L "$root" -E LD_PRELOAD="$library" -E EBB_TEST_LIBRARY="$library" \
        "$work/$program" "$@" >"$work/out" 2>&1 || status=$?
    if [ "$status" -eq 0 ] && [ "$(tail -n 1 "$work/out")" = ok ]; then
        echo "passed    $program $*"
    else
        echo "FAILED    $program $* (status $status)"
        tail -5 "$work/out"
        failures=$((failures + 1))
    fi
}

if [ $# -gt 0 ]; then
    for program in "$@"; do run "$program"; done
    exit "$failures"
fi
# Left out, since this emulator cannot do it: seccomp filters (not installed), what follows from
# MADV_WIPEONFORK (ignored), exec (starts the emulated program directly), threads and forks of threaded
# processes by the thousand (grows, and fails, under glibc's malloc too).
CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L $root" \
    cargo test --quiet --target $target -p ebbmalloc-core --lib os::linux -- --test-threads 1 \
    --skip refused --skip a_fork_without_handlers_is_noticed_once || failures=$((failures + 1))
for case in alignments sizes contents; do run interfaces $case; done
# Resolvers that allocate: after the library is relocated, and before.
options=-fno-plt
run ifunc
compile "$work/libifunc_library.so" ifunc_library -shared -fPIC -fno-plt
options="-DIN_LIBRARY -L$work -lifunc_library -Wl,-rpath,$work"
run ifunc
options=
run threads free_only
run signals storm 20000
run forks forms clone 20
# The emulator keeps some 50 MB of its own for the pages of the burst.
run forks purge fork 60
for how in asleep gone busy; do run returns burst $how; done
exit "$failures"
