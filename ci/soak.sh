#!/bin/sh
# A soak in pieces: ci/soak.sh SECONDS runs `pressure soak` for so long and adds it to fuzz/totals.tsv. Ctrl-C loses the piece.
set -eu
cd "$(dirname "$0")/.."
[ $# -eq 1 ] || { echo "usage: ci/soak.sh SECONDS" >&2; exit 64; }
EBB_SOAK_SECONDS=$1 cargo test --release -p ebbmalloc-c --test preload pressure::soaked
totals=fuzz/totals.tsv
awk -F '\t' -v OFS='\t' -v more="$1" '$1 == "soak" { $2 += more; $3 += 1; found = 1 } { print } END { if (!found) print "soak", more, 1, 0 }' \
    "$totals" >"$totals.new"
mv "$totals.new" "$totals"
