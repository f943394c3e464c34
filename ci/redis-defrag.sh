#!/usr/bin/env bash
# Builds Debian's redis against the installed header, deletes nine keys of ten, and looks whether active
# defragmentation shrinks it. Status 3 where the source cannot be had.
#
#   ci/redis-defrag.sh [BUILT]
#
# BUILT holds what `make build` made (target/release).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
built=${1:-$here/target/release}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

cargo build --quiet --release --manifest-path "$here/Cargo.toml" -p ebbmalloc-compat --target-dir "$(dirname "$built")"
"$here/ci/install-compat.sh" "$scratch/ebbmalloc" "$built"

cd "$scratch"
# The machine's own package sources, for source packages and into lists of this run's own.
mkdir -p lists/partial sources
for file in /etc/apt/sources.list /etc/apt/sources.list.d/debian.*; do
    [[ -s $file ]] || continue
    sed -E 's/^Types: deb$/Types: deb-src/; s/^deb /deb-src /' "$file" >"sources/$(basename "$file")"
done
apt=(apt-get -qq -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$scratch/sources"
    -o "Dir::State::lists=$scratch/lists" -o APT::Sandbox::User=root)
"${apt[@]}" update >/dev/null && "${apt[@]}" source --download-only redis >/dev/null 2>&1 || exit 3
tar xf redis_*.orig.tar.*
cd redis-*/
tar xf ../redis_*.debian.tar.*
# Only what lets redis take a jemalloc that is not its own copy.
for patch in debian/patches/*upstream-makefiles.patch debian/patches/*SYSTEM_JEMALLOC*.patch; do
    patch -s -p1 <"$patch"
done
C_INCLUDE_PATH=$scratch/ebbmalloc/include LIBRARY_PATH=$scratch/ebbmalloc/lib \
    make -C src -j2 MALLOC=jemalloc USE_SYSTEM_JEMALLOC=yes OPTIMIZATION=-O1 BUILD_TLS=no USE_SYSTEMD=no redis-server \
    >"$scratch/build.log" 2>&1 || { tail "$scratch/build.log" >&2; exit 1; }

LD_LIBRARY_PATH=$scratch/ebbmalloc/lib python3 - "$PWD/src/redis-server" "$scratch" <<'END'
"""Resident memory with all keys and with a tenth of them, without and with active defragmentation."""
import socket
import subprocess
import sys
import time

KEYS = 300_000
PROGRAM, FOLDER = sys.argv[1:]


def resident_mib(process):
    with open(f"/proc/{process}/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmRSS"))


def connect(port):
    for _ in range(600):
        try:
            return socket.create_connection(("127.0.0.1", port))
        except OSError:
            time.sleep(0.05)
    raise SystemExit("redis does not answer")


def measure(defragments):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [PROGRAM, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", FOLDER]
        + ["--activedefrag", defragments, "--active-defrag-ignore-bytes", "1mb", "--active-defrag-threshold-lower", "5"]
        + ["--active-defrag-cycle-min", "25", "--active-defrag-cycle-max", "75"],
        stdout=subprocess.DEVNULL,
    )
    try:
        connection = connect(port)
        answers = connection.makefile("rb")

        def ask(commands):
            words = b"".join(
                b"*%d\r\n" % len(command) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in command)
                for command in commands
            )
            connection.sendall(words)
            for _ in commands:
                if answers.readline()[:1] == b"-":
                    raise SystemExit("redis refuses")

        for start in range(0, KEYS, 1000):
            ask([(b"SET", b"key:%d" % key, b"v" * (60 + key * 37 % 300)) for key in range(start, start + 1000)])
        full = resident_mib(server.pid)
        for start in range(0, KEYS, 1000):
            ask([(b"DEL", b"key:%d" % key) for key in range(start, start + 1000) if key % 10])
        end = time.monotonic() + (60 if defragments == "yes" else 5)
        while time.monotonic() < end and resident_mib(server.pid) > full / 4:
            time.sleep(0.2)
        return full, resident_mib(server.pid)
    finally:
        server.kill()
        server.wait()


for defragments in ("no", "yes"):
    full, rest = measure(defragments)
    print(f"activedefrag {defragments}: {full:.1f} MiB resident with all keys, {rest:.1f} with a tenth", flush=True)
if rest > full / 4:
    raise SystemExit("it did not shrink")
END
