#!/usr/bin/env bash
# Unpacks packages of another release of Debian next to this machine's own: downloaded and checked by apt-get,
# never installed.
#
#   ci/unpack.sh RELEASE FOLDER PACKAGE...
#
# A package written @NAME stands for what NAME depends on: linux-image-amd64 is but a name for the newest kernel.
# FOLDER is filled once: while FOLDER/.packages names the same packages nothing is done. Without apt-get or without the
# archive it says so and ends with status 3.
set -euo pipefail

[[ $# -ge 3 ]] || { echo "usage: ci/unpack.sh RELEASE FOLDER PACKAGE..." >&2; exit 64; }
release=$1 folder=$2
shift 2
[[ $(cat "$folder/.packages" 2>/dev/null) == "$*" ]] && exit 0

[[ $(uname -m) == x86_64 ]] || { echo "unpack.sh: for x86-64 only" >&2; exit 3; }
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
    { echo "unpack.sh: needs apt-get and dpkg-deb" >&2; exit 3; }

mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
apt=$folder.apt
rm -rf "${folder:?}" "${apt:?}"
mkdir -p "$folder" "$apt"/{state/lists/partial,cache/archives/partial,packages}
# Debian's archive, from where this machine has its own packages.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Identifier: Packages' 'Label: Debian' | head -1)
[[ $mirror ]] || { echo "unpack.sh: no archive of Debian is among apt's sources" >&2; exit 3; }
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $release main" \
    >"$apt/sources.list"
options=(-qq -o "Dir::State=$apt/state" -o "Dir::Cache=$apt/cache" -o Dir::State::status=/dev/null
    -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
    -o Acquire::Languages=none -o APT::Architecture=amd64 -o APT::Sandbox::User=root
    -o APT::Update::Error-Mode=any)

# The packages' own names.
own_names() {
    local package
    for package; do
        case $package in
        @*) apt-cache "${options[@]}" depends --important "${package#@}" | sed -n 's/^ *Depends: //p' ;;
        *) echo "$package" ;;
        esac
    done
}

if ! { apt-get "${options[@]}" update && mapfile -t names < <(own_names "$@") && [[ ${#names[@]} -gt 0 ]] &&
    (cd "$apt/packages" && apt-get "${options[@]}" download "${names[@]}"); }; then
    echo "unpack.sh: $* of $release are not to be had; is there a network?" >&2
    exit 3
fi
for package in "$apt"/packages/*.deb; do
    dpkg-deb -x "$package" "$folder"
done
rm -rf "$apt"
echo "$*" >"$folder/.packages"
