#!/usr/bin/env bash
# Whether the crates that programs use changed incompatibly: cargo-semver-checks compares them with what crates.io has, or with
# the newest release's tag as long as it has none. Before the first release there is nothing to compare with.
#
#   ci/semver.sh
#
# Without cargo-semver-checks it says so and ends with status 3.
set -euo pipefail
cd "$(dirname "$0")/.."
# The other crates are for these and for `ebb`: each release may change them.
crates=(ebbmalloc ebb-stats)
version=0.51.0

baseline=()
# Outside of the workspace, where the name is that of a folder.
if ! (cd / && "${CARGO:-cargo}" info --quiet "${crates[0]}") >/dev/null 2>&1; then
    # A release that is checked out is compared with the one before it.
    tag=$(git tag --list 'v[0-9]*' --no-contains HEAD --sort=-version:refname | head -n 1)
    if [[ -z $tag ]]; then
        echo "semver.sh: no release to compare with: no earlier tag v*, and crates.io has no ${crates[0]}"
        exit 0
    fi
    baseline=(--baseline-rev "$tag")
fi
"${CARGO:-cargo}" semver-checks --version >/dev/null 2>&1 || {
    echo "semver.sh: no cargo-semver-checks: cargo install --locked cargo-semver-checks@$version" >&2
    exit 3
}
exec "${CARGO:-cargo}" semver-checks "${baseline[@]}" "${crates[@]/#/--package=}"
