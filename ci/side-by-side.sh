#!/usr/bin/env bash
# Runs lanes of make targets side by side; the targets of a lane run one after the other. The output of a target is printed when
# it ends, with its time. After a failure its lane ends and the others go on. Status 1 if a target failed.
#
#   ci/side-by-side.sh 'library preload python' 'lint docs loom'
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
# The lanes are not this make's children for -j, and cargo would ask its job server.
unset MAKEFLAGS MFLAGS MAKELEVEL

lane() {
    local target start status
    for target; do
        start=$SECONDS
        echo "make $target: started" >&2
        "${MAKE:-make}" "$target" >"$logs/$target" 2>&1
        status=$?
        # One at a time.
        (
            flock 9
            printf '\n== make %s: status %s, %s s\n' "$target" "$status" "$((SECONDS - start))"
            cat "$logs/$target"
        ) 9>"$logs/lock"
        ((status == 0)) || { echo "$target" >>"$logs/failed"; return; }
    done
}

lanes=()
for targets; do
    # The targets are words.
    # shellcheck disable=SC2086
    lane $targets &
    lanes+=($!)
done
trap 'kill "${lanes[@]}" 2>/dev/null' INT TERM
wait "${lanes[@]}"
[[ ! -e $logs/failed ]] || { printf '\nmake: failed: %s\n' "$(paste -sd' ' "$logs/failed")" >&2; exit 1; }
