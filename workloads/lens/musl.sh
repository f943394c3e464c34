#!/usr/bin/env bash
# Makes a CPython on musl, as the real service's Alpine has it, with this workload's packages: .musl/bin/python3.11. Ten minutes on two
# cores; nothing where it is there already.
#
#   ./musl.sh
#
# Needs what ci/musl-python.sh needs, and Python 3.11 with pip. It names what is missing, with status 3.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

packages=.musl/lib/python3.11/site-packages
if [[ -e $packages/workloads.pth ]]; then
    exit
fi
command -v python3.11 >/dev/null || { echo "musl.sh: python3.11 is missing; on Debian: apt-get install python3.11" >&2; exit 3; }
../../ci/musl-python.sh .musl openssl

# The same versions as on glibc, by the same hashes. Some packages have a wheel for musl 1.1 only.
lock=$(mktemp)
trap 'rm "$lock"' EXIT
../../ci/python-env.sh --lock . >"$lock"
python3.11 -m pip install --quiet --no-input --disable-pip-version-check --require-hashes --only-binary=:all: --no-deps \
    --platform musllinux_1_2_x86_64 --platform musllinux_1_1_x86_64 --platform any \
    --python-version 3.11 --implementation cp --abi cp311 --target "$packages" -r "$lock"
.musl/bin/python3.11 -c 'import ctypes, pyarrow, ssl, uvloop'
(cd .. && pwd) >"$packages/workloads.pth"
