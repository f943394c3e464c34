#!/usr/bin/env bash
# Checks in a moment what a target of the Makefile needs, before minutes of work, and says all that is missing at once:
# what is needed, what was found, and the command that installs it. Status 1 if something is missing.
#
#   ci/needs.sh TARGET FREE_MB PACKAGES...
#
# PACKAGES as for ci/install.sh, which installs them with INSTALL=1, after a question, or where there is no terminal for one.
# `some` and `long` may stay missing: their tests are skipped, unless EBB_REQUIRE_ALL=1. They need INSTALL=1 or a yes.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
target=${1:?usage: ci/needs.sh TARGET FREE_MB PACKAGES...} free_mb=$2
shift 2
problems=()

# lacks NEEDED FOUND COMMAND
lacks() { problems+=("$(printf '  needed   %s\n  found    %s\n  do       %s' "$1" "$2" "$3")"); }

# Whether version $1 is at least $2.
at_least() { [[ $(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1) == "$2" ]]; }

rust_wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$here/Cargo.toml")
rustup_line="curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh"

check_rust() {
    local cargo=${CARGO:-cargo} rustc=${RUSTC:-rustc} said version update="rustup update stable && rustup default stable"
    if ! command -v "$cargo" >/dev/null; then
        if [[ -x ${CARGO_HOME:-${HOME:-}/.cargo}/bin/cargo ]]; then
            lacks "cargo on the PATH" "${CARGO_HOME:-$HOME/.cargo}/bin/cargo, which is not on the PATH" \
                ". \"${CARGO_HOME:-$HOME/.cargo}/env\""
        else
            lacks "Rust $rust_wanted or later, with cargo" "no cargo" "$rustup_line"
        fi
        return
    fi
    command -v rustup >/dev/null || update=$rustup_line
    said=$("$rustc" --version 2>&1) || {
        lacks "Rust $rust_wanted or later" "$rustc --version says: ${said%%$'\n'*}" "$update"
        return
    }
    version=$(sed -n 's/^rustc \([0-9.]*\).*/\1/p' <<<"$said")
    if ! at_least "${version:-0}" "$rust_wanted"; then
        lacks "Rust $rust_wanted or later" "$said, $(command -v "$rustc")" "$update"
        return
    fi
    [[ $target == test ]] || return 0
    local tool
    for tool in clippy fmt; do
        "$cargo" "$tool" --version >/dev/null 2>&1 ||
            lacks "cargo $tool" "none" "rustup component add clippy rustfmt"
    done
}

check_python() {
    local python=${PYTHON:-python3} version
    # Where there is none, it is among the packages.
    command -v "$python" >/dev/null || return 0
    version=$("$python" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])') || version=0
    at_least "$version" 3.11 ||
        lacks "Python 3.11 or later" "$version, $(command -v "$python")" "make $target PYTHON=/path/to/python3.11"
}

# The dynamic loader splits LD_PRELOAD at both.
check_path() {
    local folder=${CARGO_TARGET_DIR:-$here/target}
    [[ $folder != *[[:space:]:]* ]] ||
        lacks "a path without spaces and colons (LD_PRELOAD cannot hold them)" "$folder" \
            "move the folder, or set CARGO_TARGET_DIR to another one"
}

check_disk() {
    local folder=${CARGO_TARGET_DIR:-$here/target} free
    while [[ ! -d $folder ]]; do folder=$(dirname "$folder"); done
    free=$(($(df -Pk "$folder" | awk 'NR == 2 { print $4 }') / 1024))
    # What an earlier build left counts: it is not built again.
    [[ $free -ge $free_mb || -d ${CARGO_TARGET_DIR:-$here/target}/release ]] ||
        lacks "$free_mb MB of free disk" "$free MB in $folder" "free some, or set CARGO_TARGET_DIR to a folder on another disk"
}

check_rust
check_path
check_disk
(($# == 0)) || check_python
must=() some=()
for package; do
    case $package in some | long) some+=("$package") ;; *) must+=("$package") ;; esac
done
if ((${#problems[@]} > 0)); then
    missing=$("$here/ci/install.sh" --list "${must[@]}" | paste -sd' ')
    [[ -z $missing ]] || lacks "Debian packages" "not installed: $missing" \
        "apt-get update && apt-get install --no-install-recommends $missing"
    printf 'make %s: something is missing; nothing was built or installed.\n' "$target" >&2
    printf '\n%s\n' "${problems[@]}" >&2
    exit 1
fi
if [[ ${EBB_REQUIRE_ALL:-} == 1 ]]; then
    "$here/ci/install.sh" "${must[@]}" "${some[@]}"
    exit
fi
# Without a terminal there is no answer to wait for: the few packages that everything needs are named
# and installed, unless INSTALL=0.
[[ -t 0 ]] || must_answer=1
INSTALL=${INSTALL:-${must_answer:-}} "$here/ci/install.sh" "${must[@]}"
if ((${#some[@]} > 0)); then
    "$here/ci/install.sh" --optional "${some[@]}"
    [[ -z $("$here/ci/install.sh" --list "${some[@]}") ]] ||
        echo "Tests that need one of these are skipped; the list is at the end." >&2
fi
