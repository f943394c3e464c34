#!/usr/bin/env bash
# Reads CPython from outside in every interpreter from 3.8 on that pyenv or uv has on this machine.
#
#   ci/pythons.sh [CARGO TEST ARGUMENT]...
#
# Installs none. Where neither has one it says so and ends with status 3.
set -euo pipefail
cd "$(dirname "$0")/.."

[[ $(uname -m) == x86_64 ]] || { echo "pythons.sh: for x86-64 only" >&2; exit 3; }
folders=("${PYENV_ROOT:-$HOME/.pyenv}/versions")
command -v uv >/dev/null && folders+=("$(uv python dir)")

found=
for folder in "${folders[@]}"; do
    for minor in 8 9 10 11 12 13; do
        for python in "$folder"/*3."$minor".*/bin/python3."$minor"; do
            [[ -x $python ]] || continue
            echo "$("$python" --version) of ${folder##*/}"
            found+=${found:+:}$python
        done
    done
done
[[ -n $found ]] || { echo "pythons.sh: neither pyenv nor uv has an interpreter" >&2; exit 3; }

EBB_TEST_PYTHONS=$found cargo test -p ebb-inspect --test cpython "$@"
