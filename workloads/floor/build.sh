#!/usr/bin/env bash
# Builds floor.so next to its source, unless it is newer; the setup of each workload that has the variant calls it.
# Needs a C compiler (Debian: build-essential).
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")"
if [[ floor.so -nt floor.c ]]; then
    exit 0
fi
compiler=${CC:-cc}
command -v "$compiler" >/dev/null || {
    printf 'floor: no C compiler (%s); on Debian: apt-get install build-essential\n' "$compiler" >&2
    exit 1
}
# By way of another name: a trial that runs meanwhile keeps the file that it has mapped.
trap 'rm -f "floor.so.$$"' EXIT
"$compiler" -std=c11 -O2 -Wall -Wextra -Werror -fPIC -shared -pthread -o "floor.so.$$" floor.c
mv "floor.so.$$" floor.so
