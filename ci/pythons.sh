#!/usr/bin/env bash
# CPython in other versions than this machine's python3: 3.9, 3.13 and 3.14 from Debian's archive, a debug build of 3.13,
# and every one from 3.8 on that pyenv or uv has here. Reads them and the stacks of their profiles from outside, has
# malloc_trim called in 3.14 by its remote execution, and runs them under the preload.
#
#   ci/pythons.sh [CARGO TEST ARGUMENT]...
#   ci/pythons.sh --list      prints their paths, separated by colons, as EBB_TEST_PYTHONS wants them
#
# Installs none: Debian's are unpacked under target/pythons with the C library that they need (ci/unpack.sh) and run
# by its loader. Free-threaded builds that ci/free-threaded.sh made are listed too. Where there is none of all these it
# says so and ends with status 3.
set -euo pipefail
cd "$(dirname "$0")/.."

[[ $(uname -m) == x86_64 ]] || { echo "pythons.sh: for x86-64 only" >&2; exit 3; }
found= executes= special=

# add PROGRAM WHOSE: one more to read; 3.14 can also be told to run something.
add() {
    echo "$("$1" --version) of $2" >&2
    found+=${found:+:}$1
    [[ $1 != *python3.14 ]] || executes=$1
}

# add_special PROGRAM WHOSE: one whose objects are laid out otherwise, for the preload alone.
add_special() {
    echo "$("$1" --version) of $2" >&2
    special+=:$1
}

# start_script PROGRAM: a script in the unpacked root that starts one of its interpreters.
start_script() {
    local loader libraries start=$root/$1
    loader=$(readlink -f "$(find "$root" -name ld-linux-x86-64.so.2 | head -1)")
    libraries=$(find "$root" -name 'lib*.so.*' -printf '%h\n' | sort -u | paste -sd:)
    # A relocated prefix; the name of the program tells nothing, because the loader is what is executed.
    printf '#!/bin/sh\nPYTHONHOME=%q exec %q --library-path %q %q "$@"\n' \
        "$root/usr" "$loader" "$libraries" "$root/usr/bin/$1" >"$start"
    chmod +x "$start"
}

# from_debian RELEASE MINOR PACKAGE...: 3.MINOR with ctypes and the C library, and a script that starts it; where its
# debug build is among the packages, that too. With the links that make it a root, in which environments can be made.
from_debian() {
    local link release=$1 version=3.$2 root=$PWD/target/pythons/$1
    shift 2
    ci/unpack.sh "$release" "$root" "python$version-minimal" "libpython$version-minimal" "libpython$version-stdlib" \
        "python$version-venv" libc6 libgcc-s1 libexpat1 zlib1g "$@" || return
    for link in bin lib lib64; do [[ -e $root/$link ]] || ln -s "usr/$link" "$root/$link"; done
    mkdir -p "$root/tmp"
    start_script "python$version"
    add "$root/python$version" "Debian's $release"
    if [[ -x $root/usr/bin/python$version-dbg ]]; then
        start_script "python$version-dbg"
        add_special "$root/python$version-dbg" "Debian's $release, a debug build"
    fi
}

from_debian bullseye 9 libffi7 python-pip-whl python3-distutils || echo "pythons.sh: without 3.9 of Debian" >&2
from_debian trixie 13 libffi8 python3-pip-whl python3.13-dbg libpython3.13-dbg || echo "pythons.sh: without 3.13 of Debian" >&2
from_debian sid 14 libffi8 python3-pip-whl || echo "pythons.sh: without 3.14 of Debian" >&2

folders=("${PYENV_ROOT:-$HOME/.pyenv}/versions")
command -v uv >/dev/null && folders+=("$(uv python dir)")
for folder in "${folders[@]}"; do
    for minor in 8 9 10 11 12 13 14; do
        for python in "$folder"/*3."$minor".*/bin/python3."$minor"; do
            [[ ! -x $python ]] || add "$python" "${folder##*/}"
        done
    done
done
for python in target/pythons/*/bin/python3.*t; do
    [[ ! -x $python ]] || add_special "$PWD/$python" "ci/free-threaded.sh"
done
[[ -n $found ]] || { echo "pythons.sh: neither Debian's archive, nor pyenv, nor uv has one" >&2; exit 3; }

if [[ ${1:-} == --list ]]; then
    echo "$found$special"
    exit
fi

EBB_TEST_PYTHONS=$found "${CARGO:-cargo}" test -p ebb-inspect --test cpython "$@"
EBB_TEST_PYTHONS=$found "${CARGO:-cargo}" test -p ebbmalloc-cli --test profile python:: "$@"
EBB_TEST_PYTHONS=$found$special "${CARGO:-cargo}" test -p ebbmalloc-c --test preload pythons:: "$@"
if [[ -z $executes ]]; then
    echo "pythons.sh: no 3.14 here, whose remote execution could be tried" >&2
    exit 3
fi
EBB_TEST_PYTHON_314=$executes "${CARGO:-cargo}" test -p ebbmalloc-cli --test trim remote:: -- --ignored
