#!/bin/sh
# The core's unit tests under the address sanitizer. The stable compiler has its runtime; without it the status is 3.
# mlock does nothing there. The thread sanitizer is of no use here: it knows neither fences nor membarrier.
set -eu
cd "$(dirname "$0")/.."
target=$(uname -m)-unknown-linux-gnu
ls "$(rustc --print target-libdir --target "$target")"/librustc-*_rt.asan.a >/dev/null 2>&1 || {
    echo "sanitize.sh: this compiler has no runtime of the address sanitizer" >&2
    exit 3
}
# Tests do not free all that they allocate.
RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address ASAN_OPTIONS=detect_leaks=0 CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/sanitize" \
    cargo test --quiet -p ebbmalloc-core --lib --target "$target" -- --skip locked_runs
