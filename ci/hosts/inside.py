#!/usr/bin/env python3
"""Runs in a root of the matrix, on its Python: the preload suite's cases, real programs, `ebb why`, `ebb run --verify`.

    inside.py FOLDER RESULT [--sample]

FOLDER is what ci/hosts/run.py placed: ebb, cases.json, glibc/ and musl/ with compiled programs. RESULT is the file that is written.
"""

from concurrent.futures import ThreadPoolExecutor
import json
import os
from pathlib import Path
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time

FOLDER = Path(sys.argv[1])
EBB = str(FOLDER / "ebb")
LIBRARY = FOLDER / "library/libebbmalloc.so"
# An emulated processor on a busy machine.
LIMIT_S = 420
# Most cases wait more than they work.
WORKERS = 2 * os.cpu_count()
# Of the bytes that a program holds.
WHY_WRONG_MOST = 0.10

BASH = """set -eu
declare -A words=()
for i in $(seq 1 3000); do words["w$((i % 97))"]="${words["w$((i % 97))"]:-}x$i"; done
test "${#words[@]}" = 97
(for i in $(seq 1 20); do (echo "$i" | sed 's/^/n/' | tr n m); done) | sort | uniq | wc -l | grep -qx 20
mapfile -t lines < <(seq 1 20000); test "${#lines[@]}" = 20000
"""
PYTHON = """import json, re, subprocess, threading
lists = [[str(i) * (i % 50) for i in range(20000)] for _ in range(4)]
assert json.loads(json.dumps(lists)) == lists
threads = [threading.Thread(target=lambda: [bytearray(i * 100) for i in range(2000)]) for _ in range(4)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
assert subprocess.run(["sort", "-n"], input="3\\n1\\n2\\n", capture_output=True, text=True).stdout == "1\\n2\\n3\\n"
"""
PERL = "my %h; $h{$_ % 977} .= $_ for 1 .. 200000; die unless keys %h == 977; print length(join '', values %h)"
PROGRAMS = {
    "bash": ["bash", "-c", BASH],
    "python3": ["python3", "-c", PYTHON],
    "perl": ["perl", "-e", PERL],
    "sort": ["sh", "-c", "seq 1 200000 | sort -R --random-source=/bin/sh | sort -n | tail -n 1 | grep -qx 200000"],
}


def run(command, environment=None, limit_s=LIMIT_S):
    """Status (None after the limit), stdout, stderr; all processes of it are ended."""
    everything = {"PATH": "/usr/bin:/bin", "HOME": "/root", "LC_ALL": "C", **(environment or {})}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            command, env=everything, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True, cwd="/tmp"
        )
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            status = None
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
        return status, texts[0], texts[1]


def ended(status, error):
    """How a command failed, in one line."""
    how = f"over after {LIMIT_S} s" if status is None else f"signal {-status}" if status < 0 else f"status {status}"
    last = (error.strip().splitlines() or [""])[-1][:160]
    return f"{how}: {last}" if last else how


def case(told):
    """None, or how it failed."""
    start = time.monotonic()
    folder = FOLDER / told["libc"]
    words = [str(folder / f"lib{word[1:]}.so") if word.startswith("@") else word for word in told["command"]]
    objects = {place: [str(folder / f"lib{name}.so") for name in told[place]] for place in ("before", "after")}
    environment = {
        "EBB_TEST_LIBRARY": str(LIBRARY),
        "LD_PRELOAD": ":".join([*objects["before"], str(LIBRARY), *objects["after"]]),
        **told["environment"],
    }
    command = [str(folder / words[0]), *words[1:]]
    if told["through"]:
        pairs = [f"{name}={value}" for name, value in environment.items()]
        command, environment = [*told["through"], "env", *pairs, *command], {}
    status, out, error = run(command, environment)
    if told["expected"] == "abort":
        lines = error.splitlines()
        right = status == -signal.SIGABRT and len(lines) == 1 and lines[0].startswith("ebbmalloc: ")
    else:
        right = status == 0 and out.endswith("ok\n")
    reason = None if right else ended(status, error)
    print(f"{'FAILED' if reason else 'passed'} {told['name']} after {time.monotonic() - start:.0f} s {reason or ''}", flush=True)
    return reason


def real_program(name):
    """None, or how it failed; the library has to be in charge in it."""
    with tempfile.TemporaryDirectory() as folder:
        witness = Path(folder) / "witness"
        preload = f"{LIBRARY}:{FOLDER / 'glibc/libwitness.so'}"
        status, _, error = run(PROGRAMS[name], {"LD_PRELOAD": preload, "EBB_TEST_WITNESS": str(witness)})
        if status != 0:
            return ended(status, error)
        lines = [line.split("\t") for line in witness.read_text().splitlines()]
    seen = {file for program, file in lines if program.startswith(name)}
    return None if seen == {str(LIBRARY)} else f"malloc comes from {sorted(seen)}"


def why(libc):
    """None, or what `ebb why` got wrong about a process of this libc without a preload."""
    process = subprocess.Popen([str(FOLDER / libc / "held")], stdout=subprocess.PIPE, env={})
    try:
        held = int(process.stdout.readline())
        status, out, error = run([EBB, "why", "--json", str(process.pid)])
        if status is None or not 0 <= status <= 20:
            return ended(status, error)
        lines = json.loads(out)[0]["ledger"]["lines"]
        live = next((line for line in lines if line["cause"] == "live"), {"bytes": 0, "note": None})
        note = live["note"] or "no heap"
        if note.split()[0] != libc:
            return f"names {note}"
        if abs(live["bytes"] - held) > WHY_WRONG_MOST * held:
            return f"{live['bytes'] / 1e6:.1f} MB live, not {held / 1e6:.1f}"
        return None
    finally:
        process.kill()
        process.wait()


def verify(libc):
    """None, or what `ebb run --verify` said of the library that ebb carries."""
    programs = {
        "glibc": ["python3", "-c", "import subprocess; subprocess.run(['sleep', '8'])"],
        "musl": [str(FOLDER / "musl/held"), "8"],
    }
    status, _, error = run([EBB, "run", "--verify", "--verify-for", "4", "--", *programs[libc]], limit_s=60)
    right = re.search(r"ebbmalloc \(.*\) is in charge of (all \d+ processes|the process)", error)
    return None if right else ended(status, error)


def libc_version(libc):
    if libc == "glibc":
        return os.confstr("CS_GNU_LIBC_VERSION").split()[1]
    said = run([f"/lib/ld-musl-{platform.machine()}.so.1"])[2]
    return re.search(r"Version ([\d.]+)", said).group(1)


def main():
    sample = sys.argv[3:] == ["--sample"]
    result = {"kernel": platform.release(), "arch": platform.machine(), "page_bytes": os.sysconf("SC_PAGE_SIZE"), "libcs": {}}
    status, _, error = run([EBB, "library", "--out", str(LIBRARY.parent)])
    if status != 0:
        sys.exit(f"ebb library: {ended(status, error)}")
    cases = [told for told in json.loads((FOLDER / "cases.json").read_text()) if told["sampled"] or not sample]
    with ThreadPoolExecutor(WORKERS) as workers:
        failed = dict(zip([told["name"] for told in cases], workers.map(case, cases)))
        programs = dict(zip(PROGRAMS, workers.map(real_program, PROGRAMS)))
    for libc in ("glibc", "musl"):
        own = {told["name"]: failed[told["name"]] for told in cases if told["libc"] == libc}
        if libc == "glibc":
            own.update({f"programs::{name}": reason for name, reason in programs.items()})
        result["libcs"][libc] = {
            "version": libc_version(libc),
            "cases": len(own),
            "failed": {name: reason for name, reason in own.items() if reason},
            "why": why(libc),
            "verify": verify(libc),
        }
    Path(sys.argv[2]).write_text(json.dumps(result, indent=1) + "\n")


main()
