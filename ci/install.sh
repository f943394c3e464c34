#!/usr/bin/env bash
# Makes sure that the Debian packages in ci/packages.txt are there: all of them, or those named.
#
#   ci/install.sh [PACKAGE]...
#
# Installs what is missing where it may (root and apt-get), else prints the exact command and fails.
# A package whose program is on the PATH from elsewhere (a newer node, java or go) counts as there.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# The program by which a package from elsewhere is recognised.
program_of() {
    case $1 in
    build-essential) echo g++ ;;
    python3) echo python3 ;;
    nodejs) echo node ;;
    default-jdk-headless) echo javac ;;
    golang-go) echo go ;;
    git | gdb | valgrind | ruby | sqlite3 | chromium | redis-server | gunicorn) echo "$1" ;;
    redis-tools) echo redis-benchmark ;;
    musl-tools) echo musl-gcc ;;
    pkg-config) echo pkg-config ;;
    esac
}

is_there() {
    local program
    program=$(program_of "$1")
    [[ -n $program ]] && command -v "$program" >/dev/null && return 0
    case $1 in
    # The environment script needs the venv module and any pip, whoever brought them.
    python3-pip) python3 -m pip --version >/dev/null 2>&1 && return 0 ;;
    libpython3.11-testsuite) python3 -c 'import test.test_dict' >/dev/null 2>&1 && return 0 ;;
    python3-venv) python3 -c 'import venv' >/dev/null 2>&1 && return 0 ;;
    esac
    dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q '^install ok installed$'
}

if [[ $# -gt 0 ]]; then
    wanted=("$@")
else
    mapfile -t wanted < <(sed -E 's/#.*//; s/[[:space:]].*//; /^$/d' "$here/packages.txt")
fi

missing=()
for package in "${wanted[@]}"; do
    is_there "$package" || missing+=("$package")
done
[[ ${#missing[@]} -eq 0 ]] && exit 0

command="apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
if [[ $(id -u) -ne 0 ]] || ! command -v apt-get >/dev/null; then
    printf 'Missing packages. As root:\n\n    %s\n\n' "$command" >&2
    exit 1
fi
printf 'Installing: %s\n' "${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq >&2
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
