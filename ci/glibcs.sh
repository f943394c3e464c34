#!/usr/bin/env bash
# Reads the heaps of real processes on other versions of glibc: 2.31, 2.41 and 2.43, from Debian's archive.
#
#   ci/glibcs.sh [CARGO TEST ARGUMENT]...
#
# The packages are unpacked next to each other under target/glibcs, never installed (ci/unpack.sh); programs run on them
# by their own loaders. Without the archive it says so and ends with status 3.
set -euo pipefail
cd "$(dirname "$0")/.."

# Debian's names of the releases that have them. sid moves on: the newest version is what is tested.
releases=(bullseye trixie sid)
folder=$PWD/target/glibcs/versions
mkdir -p "$folder"

for release in "${releases[@]}"; do
    root=$PWD/target/glibcs/$release
    ci/unpack.sh "$release" "$root" libc6
    libc=$(find "$root" -name libc.so.6 | head -1)
    version=$(strings -a "$libc" | sed -n 's/^GNU C Library.*version \([0-9.]*[0-9]\)\.$/\1/p' | head -1)
    [[ -n $version ]] || { echo "glibcs.sh: $libc does not tell its version" >&2; exit 1; }
    rm -rf "${folder:?}/$version"
    cp -r "$(dirname "$libc")" "$folder/$version"
done

export EBB_GLIBCS=$folder
echo "glibc $(ls "$folder" | tr '\n' ' ')and this machine's"
exec "${CARGO:-cargo}" test -p ebb-inspect --test glibc "$@"
