#!/usr/bin/env bash
# Prints the tests that were skipped since `ci/skipped.sh --clear`, why, and what would install what they need.
# The list is written by crates/test-needs and workloads/answers/needs.py: kind, package or reason, test.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# The loom and stress builds have folders of their own in it.
target=${CARGO_TARGET_DIR:-$here/target}
list=$target/skipped.tsv

[[ ${1:-} != --clear ]] || { rm -f "$list"; exit 0; }
[[ -s $list ]] || exit 0
echo
echo "Skipped:"
sort -u "$list" | awk -F'\t' '{ print "  " $3 ": " ($1 == "package" ? "needs the package " $2 : $2) }'
packages=$(awk -F'\t' '$1 == "package" { print $2 }' "$list" | sort -u | paste -sd' ')
[[ -z $packages ]] || printf '\nTo run them too, as root:\n\n    apt-get update && apt-get install --no-install-recommends %s\n' "$packages"
