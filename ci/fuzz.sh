#!/bin/sh
# Fuzzes one target for a time: ci/fuzz.sh heap|conf SECONDS. One process, address sanitizer and debug
# assertions on. What was found interesting stays in fuzz/corpus for the next run; an input that fails
# is kept in fuzz/artifacts, and `cargo +nightly fuzz run TARGET FILE` repeats it.
#
# Needs a nightly compiler and cargo-fuzz; without them it says so and ends with status 3.
set -eu
cd "$(dirname "$0")/../fuzz"
[ $# -eq 2 ] || { echo "usage: ci/fuzz.sh heap|conf SECONDS" >&2; exit 64; }
rustc +nightly --version >/dev/null 2>&1 && command -v cargo-fuzz >/dev/null || {
    echo "fuzz.sh: rustup toolchain install nightly --profile minimal && cargo install cargo-fuzz" >&2
    exit 3
}
# Its own folder: flags and compiler differ from every other build.
[ -z "${CARGO_TARGET_DIR:-}" ] || export CARGO_TARGET_DIR="$CARGO_TARGET_DIR/fuzz"
exec cargo +nightly fuzz run -s address "$1" -- -max_total_time="$2" -max_len=4096 \
    -rss_limit_mb=4096 -print_final_stats=1
