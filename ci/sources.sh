#!/usr/bin/env bash
# Downloads the original sources of packages of a release of Debian, checked by apt-get: FOLDER/NAME_VERSION.orig.tar.*.
#
#   ci/sources.sh RELEASE FOLDER SOURCE...
#
# Without apt-get or without the archive it says so and ends with status 3.
set -euo pipefail

[[ $# -ge 3 ]] || { echo "usage: ci/sources.sh RELEASE FOLDER SOURCE..." >&2; exit 64; }
release=$1 folder=$2
shift 2
lacks() { echo "sources.sh: $1" >&2; exit 3; }

command -v apt-get >/dev/null || lacks "needs apt-get"
mkdir -p "$folder"
cd "$folder"
apt=$PWD/apt
mkdir -p "$apt"/{state/lists/partial,cache/archives/partial}
# From where this machine has its own packages.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Identifier: Packages' 'Label: Debian' | head -1)
[[ $mirror ]] || lacks "no archive of Debian is among apt's sources"
echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $release main" >"$apt/sources.list"
options=(-qq -o "Dir::State=$apt/state" -o "Dir::Cache=$apt/cache" -o Dir::State::status=/dev/null
    -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
    -o Acquire::Languages=none -o APT::Sandbox::User=root -o APT::Update::Error-Mode=any)
{ apt-get "${options[@]}" update && apt-get "${options[@]}" source --download-only --tar-only "$@"; } ||
    lacks "the sources of $* of $release are not to be had; is there a network?"
rm -rf "${apt:?}"
