#!/usr/bin/env bash
# Runs the tests and examples of tikv-jemallocator and tikv-jemalloc-ctl on ebbmalloc: the crates as
# they are published, told by their own variable JEMALLOC_OVERRIDE which library to use.
#
#   ci/tikv.sh [BUILT]
#
# BUILT holds what `make build` made (target/release). Needs the crate registry, once.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
built=${1:-$here/target/release}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

cargo build --quiet --release --manifest-path "$here/Cargo.toml" -p ebbmalloc-compat --target-dir "$(dirname "$built")"
"$here/ci/install-compat.sh" "$scratch/ebbmalloc" "$built"

# The sources, as the registry has them.
mkdir -p "$scratch/wanted/src" "$scratch/crates"
touch "$scratch/wanted/src/lib.rs"
cat >"$scratch/wanted/Cargo.toml" <<'END'
[package]
name = "wanted"
version = "0.0.0"
edition = "2021"
[workspace]
[dependencies]
tikv-jemallocator = { version = "=0.7.0", features = ["stats", "unprefixed_malloc_on_supported_platforms"] }
tikv-jemalloc-ctl = { version = "=0.7.0", features = ["stats", "profiling", "use_std"] }
tikv-jemalloc-sys = "=0.7.1"
END
for crate in tikv-jemallocator tikv-jemalloc-ctl; do
    manifest=$(cargo metadata --quiet --format-version 1 --manifest-path "$scratch/wanted/Cargo.toml" |
        python3 -c 'import json, sys
print(next(p["manifest_path"] for p in json.load(sys.stdin)["packages"] if p["name"] == sys.argv[1]))' "$crate")
    cp -r "$(dirname "$manifest")" "$scratch/crates/$crate"
    chmod -R u+w "$scratch/crates/$crate"
    rm -f "$scratch/crates/$crate/Cargo.lock"
done

# Its own tests use the other crate, which publishing had to leave out.
printf '\n[dev-dependencies.tikv-jemalloc-ctl]\nversion = "0.7.0"\n' >>"$scratch/crates/tikv-jemallocator/Cargo.toml"

# One workspace, so that `wanted` chooses the features of all: names without the prefix.
sed -i '/^\[workspace\]$/d' "$scratch/wanted/Cargo.toml"
cat >"$scratch/Cargo.toml" <<'END'
[workspace]
resolver = "2"
members = ["wanted", "crates/*"]
[patch.crates-io]
tikv-jemallocator = { path = "crates/tikv-jemallocator" }
tikv-jemalloc-ctl = { path = "crates/tikv-jemalloc-ctl" }
END

cd "$scratch"
export JEMALLOC_OVERRIDE=$scratch/ebbmalloc/lib/libjemalloc.so
export LD_LIBRARY_PATH=$scratch/ebbmalloc/lib
# Theirs expects that no thread returns memory unless it is asked to; ours does.
cargo test --quiet --no-fail-fast --workspace --features tikv-jemallocator/stats --target-dir target \
    -- --skip background_threads_runtime_defaults >"$scratch/log" 2>&1 ||
    { cat "$scratch/log" >&2; exit 1; }
passed=$(awk '/^test result: ok/ { sum += $4 } END { print sum }' "$scratch/log")
# It was ebbmalloc that they ran on.
program=$(find target/debug/deps -maxdepth 1 -type f -perm -u+x -name 'usable_size-*' | head -n 1)
ldd "$program" | grep -q "$scratch/ebbmalloc/lib/libjemalloc.so.2"
printf '%s tests and examples of the two crates passed\n' "$passed"
((passed > 50))
