#!/usr/bin/env bash
# Creates or refreshes the Python environment of a workload from its locked requirements.
#
#   ci/python-env.sh [FOLDER]...     default: every workloads/*/ that has a requirements.txt
#   ci/python-env.sh --lock FOLDER   only prints the lock with its hashes, as pip reads it
#
# Needs Python 3.11 or newer with the venv module and pip (Debian: python3 python3-pip); not
# ensurepip, so Debian's python3-venv may be absent. PYTHON names another interpreter.
# An environment that already matches its lock is left alone, which takes milliseconds.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${PYTHON:-python3}

fail() {
    printf 'python-env: %s\n' "$1" >&2
    exit 1
}

command -v "$python" >/dev/null ||
    fail "$python not found; on Debian: apt-get install python3 python3-pip"

# The versions of a folder with their hashes, which ci/python-hashes.txt has for all folders (ci/python-lock.py).
lock() {
    awk 'NR == FNR { if (/^ /) hashes[name] = hashes[name] " --hash=sha256:" $1; else name = $1; next }
        !/^#/ { print $0 hashes[$1] }' "$root/ci/python-hashes.txt" "$1/requirements.txt"
}

# What the environment was made from: the lock, and the interpreter that it links to.
fingerprint() {
    { lock "$1" && "$python" -c 'import sys; print(sys.version, sys.base_prefix)'; } |
        sha256sum | cut -d' ' -f1
}

make_environment() {
    local folder=$1 venv=$1/.venv wanted
    wanted=$(fingerprint "$folder")
    if [[ -x $venv/bin/python && $(cat "$venv/.fingerprint" 2>/dev/null) == "$wanted" ]]; then
        return
    fi
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "$python is $("$python" --version 2>&1); Python 3.11 or newer is needed"
    "$python" -m pip --version >/dev/null 2>&1 ||
        fail "$python has no pip; on Debian: apt-get install python3-pip"
    printf 'python-env: making %s\n' "$venv" >&2
    rm -rf "$venv"
    "$python" -m venv --without-pip "$venv"
    lock "$folder" >"$venv/requirements.txt"
    # pip of the interpreter outside installs into the environment: none is needed inside.
    "$python" -m pip --python "$venv/bin/python" install --quiet --no-input \
        --disable-pip-version-check --require-hashes --only-binary=:all: \
        -r "$venv/requirements.txt" ||
        fail "installing $folder/requirements.txt failed"
    printf '%s\n' "$wanted" >"$venv/.fingerprint"
}

# Python modules of workloads/ can be imported in every workload: workloads/answers.
share_answers() {
    local packages
    for packages in "$1"/.venv/lib/python3*/site-packages; do
        printf '%s\n' "$root/workloads" >"$packages/workloads.pth"
    done
}

if [[ ${1-} == --lock && $# == 2 ]]; then
    lock "$2"
    exit
fi
if (($# == 0)); then
    for lock in "$root"/workloads/*/requirements.txt; do
        set -- "$@" "$(dirname "$lock")"
    done
fi
for folder in "$@"; do
    [[ -f $folder/requirements.txt ]] || fail "$folder has no requirements.txt"
    make_environment "$(cd "$folder" && pwd)"
    share_answers "$folder"
done
