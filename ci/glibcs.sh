#!/usr/bin/env bash
# Reads the heaps of real processes on other versions of glibc: 2.31, 2.41 and 2.43, from Debian's archive. Then starts
# programs of 2.31 under the preload: there dlopen and threads are libraries of their own.
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
    # The oldest with what a compiler needs.
    packages=(libc6)
    [[ $release != "${releases[0]}" ]] || packages+=(libc6-dev linux-libc-dev)
    ci/unpack.sh "$release" "$root" "${packages[@]}"
    # Links to other places of the root lead there.
    find "$root" -type l -lname '/*' -not -lname "$root/*" -printf '%p %l\n' |
        while read -r link to; do ln -sfn "$root$to" "$link"; done
    libc=$(find "$root" -name libc.so.6 | head -1)
    version=$(strings -a "$libc" | sed -n 's/^GNU C Library.*version \([0-9.]*[0-9]\)\.$/\1/p' | head -1)
    [[ -n $version ]] || { echo "glibcs.sh: $libc does not tell its version" >&2; exit 1; }
    rm -rf "${folder:?}/$version"
    cp -r "$(dirname "$libc")" "$folder/$version"
done

export EBB_GLIBCS=$folder
echo "glibc $(ls "$folder" | tr '\n' ' ')and this machine's"
"${CARGO:-cargo}" test -p ebb-inspect --test glibc "$@"
[[ $# -eq 0 ]] || exit 0
export EBB_TEST_OLD_GLIBC=$PWD/target/glibcs/${releases[0]}
"${CARGO:-cargo}" test --release -p ebbmalloc-c --test preload startup::split
"${CARGO:-cargo}" test -p ebb --test run hosts
