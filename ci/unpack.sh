#!/usr/bin/env bash
# Unpacks packages of another release of Debian next to this machine's own: downloaded and checked by apt-get,
# never installed.
#
#   ci/unpack.sh [-a ARCH] [-d] RELEASE FOLDER PACKAGE...
#
# -a   Debian's name of the architecture, amd64 or arm64; this machine's if not given
# -d   with all packages that these depend on: a root to change into
#
# A package written @NAME stands for the packages of the kernel that NAME depends on: linux-image-amd64 is but a name for
# the newest one.
# FOLDER is filled once: while FOLDER/.packages names the same packages nothing is done. Without apt-get or without the
# archive it says so and ends with status 3.
set -euo pipefail

usage() { echo "usage: ci/unpack.sh [-a ARCH] [-d] RELEASE FOLDER PACKAGE..." >&2; exit 64; }
arch= whole=
while getopts a:d option; do
    case $option in
    a) arch=$OPTARG ;;
    d) whole=1 ;;
    *) usage ;;
    esac
done
shift $((OPTIND - 1))
[[ $# -ge 3 ]] || usage
release=$1 folder=$2
shift 2
[[ $(cat "$folder/.packages" 2>/dev/null) == "$*" ]] && exit 0

command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
    { echo "unpack.sh: needs apt-get and dpkg-deb" >&2; exit 3; }

arch=${arch:-$(dpkg --print-architecture)}
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
    -o Acquire::Languages=none -o "APT::Architecture=$arch" -o "APT::Architectures=$arch" -o APT::Sandbox::User=root
    -o APT::Update::Error-Mode=any)

# The packages' own names.
own_names() {
    local package
    for package; do
        case $package in
        @*)
            apt-cache "${options[@]}" depends --important --recurse "${package#@}" |
                sed -nE 's/^ *Depends: (linux-(image|base|binary|modules|source)-[0-9].*)/\1/p' | sort -u
            ;;
        *) echo "$package" ;;
        esac
    done
}

fetch() {
    if [[ $whole ]]; then
        apt-get "${options[@]}" --yes --no-install-recommends --download-only -o "Dir::Cache::archives=$apt/packages" \
            install "${names[@]}"
    else
        (cd "$apt/packages" && apt-get "${options[@]}" download "${names[@]}")
    fi
}

if ! { apt-get "${options[@]}" update && mapfile -t names < <(own_names "$@") && [[ ${#names[@]} -gt 0 ]] && fetch; }; then
    echo "unpack.sh: $* of $release are not to be had; is there a network?" >&2
    exit 3
fi
# Since Debian 12 packages rely on these links.
if [[ $whole ]]; then
    mkdir -p "$folder"/{usr/{bin,sbin,lib,lib64},proc,sys,dev,tmp}
    for name in bin sbin lib lib64; do ln -s "usr/$name" "$folder/$name"; done
fi
for package in "$apt"/packages/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink -C "$folder"
done
# For a compiler that sees the root from outside.
if [[ $whole ]]; then
    find "$folder" -type l -lname '/*' -print0 | while IFS= read -r -d '' link; do
        ln -sfnr "$folder$(readlink "$link")" "$link"
    done
fi
rm -rf "$apt"
echo "$*" >"$folder/.packages"
