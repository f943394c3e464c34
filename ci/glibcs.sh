#!/usr/bin/env bash
# Reads the heaps of real processes on other versions of glibc: 2.31, 2.41 and 2.43, from Debian's archive.
#
#   ci/glibcs.sh [CARGO TEST ARGUMENT]...
#
# The packages are unpacked beside each other under target/glibcs, never installed; programs run on them by
# their own loaders. Without apt-get or without the archive it says so and ends with status 3.
set -euo pipefail
cd "$(dirname "$0")/.."

# Debian's names of the releases that have them. sid moves on: the newest version is what is tested.
releases=(bullseye trixie sid)
packages=$PWD/target/glibcs/packages
folder=$PWD/target/glibcs/versions
mkdir -p "$packages" "$folder"

[[ $(uname -m) == x86_64 ]] || { echo "glibcs.sh: for x86-64 only" >&2; exit 3; }
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
    { echo "glibcs.sh: needs apt-get and dpkg-deb" >&2; exit 3; }

# unpack RELEASE: libc6 of that release into $folder/VERSION.
unpack() {
    local release=$1 apt=$packages/$1
    mkdir -p "$apt"/{state/lists/partial,cache/archives/partial,package}
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $release main" \
        >"$apt/sources.list"
    local options=(-qq -o "Dir::State=$apt/state" -o "Dir::Cache=$apt/cache" -o Dir::State::status=/dev/null
        -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o Acquire::Languages=none -o APT::Architecture=amd64 -o APT::Sandbox::User=root
        -o APT::Update::Error-Mode=any)
    rm -rf "$apt/package"
    mkdir -p "$apt/package/root"
    apt-get "${options[@]}" update && (cd "$apt/package" && apt-get "${options[@]}" download libc6) || return 1
    dpkg-deb -x "$apt"/package/libc6_*.deb "$apt/package/root"
    local libc version
    libc=$(find "$apt/package/root" -name libc.so.6 | head -1)
    version=$(strings -a "$libc" | sed -n 's/^GNU C Library.*version \([0-9.]*[0-9]\)\.$/\1/p' | head -1)
    [[ -n $version ]] || return 1
    rm -rf "${folder:?}/$version"
    cp -r "$(dirname "$libc")" "$folder/$version"
}

for release in "${releases[@]}"; do
    [[ -e $packages/$release/done ]] && continue
    if ! unpack "$release"; then
        echo "glibcs.sh: libc6 of $release is not to be had; is there a network?" >&2
        exit 3
    fi
    touch "$packages/$release/done"
done

export EBB_GLIBCS=$folder
echo "glibc $(ls "$folder" | tr '\n' ' ')and this machine's"
exec "${CARGO:-cargo}" test -p ebb-inspect --test glibc "$@"
