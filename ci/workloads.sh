#!/usr/bin/env bash
# Tests the workloads whose setup is large or whose tests start servers: numpy and zarr (readahead), pyarrow
# (lens), gunicorn (device), a Rust service in three builds (warden). Each then goes through a trial with its
# profile `test`.
#
#   ci/workloads.sh [NAME]...     default: readahead lens device warden
#
# Needs `make build` before it: the trial is run by target/release/ebb.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
ebb=${CARGO_TARGET_DIR:-$PWD/target}/release/ebb

said=$(mktemp)
trap 'rm -f "$said"' EXIT
(($# > 0)) || set -- readahead lens device warden
for name in "$@"; do
    ci/python-env.sh "workloads/$name"
    (cd "workloads/$name" && .venv/bin/python -m unittest)
    if [[ -f workloads/$name/Cargo.toml ]]; then
        (cd "workloads/$name" && cargo test --release --quiet --locked --target-dir target)
    fi
    # A variant that did not run, or not on its allocator, leaves the trial a verdict of the others.
    "$ebb" compare "workloads/$name" --profile test | tee "$said"
    if grep -E '^! .*(not run|discarded|failed)' "$said"; then
        exit 1
    fi
done
