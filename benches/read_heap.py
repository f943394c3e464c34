#!/usr/bin/env python3
"""What reading a heap of 1 GB from outside costs, the reader and the process that is read.

    cargo build --release -p ebb-inspect --example read_heap
    benches/read_heap.py [-o DIR]

A program (crates/ebb-inspect/tests/programs/heap.c) allocates 1 GB in blocks of 16 to 4000 bytes, frees every
second one, and goes on with ten requests every 200 microseconds. It is read ten times. Compared before and
during: the slowest ten requests within two seconds, page tables, resident pages. The table goes to standard
output, and with the raw figures to DIR as inspect.md and inspect.json.
"""

import argparse
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from suite import machine, markdown, report

ROOT = Path(__file__).resolve().parent.parent
READS = 10
WATCHED_SECONDS = 2


def status(pid):
    text = Path(f"/proc/{pid}/status").read_text()
    return {name: int(kib) for name, kib in re.findall(r"^(VmPTE|RssAnon):\s*(\d+) kB", text, re.M)}


def read_once(reader, pid):
    """One reading: wall and CPU seconds, the reader's own peak in KiB."""
    start = time.monotonic()
    process = subprocess.Popen([reader, str(pid)], stdout=subprocess.DEVNULL)
    _, code, usage = os.wait4(process.pid, 0)
    wall = time.monotonic() - start
    if code != 0:
        sys.exit("the reader failed")
    return {"wall_s": wall, "cpu_s": usage.ru_utime + usage.ru_stime, "peak_kib": usage.ru_maxrss}


def measure(reader, program):
    with subprocess.Popen(
        [program, "gigabyte_beating"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as target:
        assert target.stdout.readline() == "ready\n"

        def slowest_us():
            target.stdin.write("l")
            target.stdin.flush()
            return int(target.stdout.readline()) / 1000

        slowest_us()
        time.sleep(WATCHED_SECONDS)
        quiet = slowest_us()
        before = status(target.pid)
        start = time.monotonic()
        reads = [read_once(reader, target.pid) for _ in range(READS)]
        time.sleep(max(0, WATCHED_SECONDS - (time.monotonic() - start)))
        during = slowest_us()
        after = status(target.pid)
        target.kill()
    return {"reads": reads, "slowest_us_before": quiet, "slowest_us_during": during, "before": before, "after": after}


def table(result, load):
    def median(name):
        return statistics.median(read[name] for read in result["reads"])

    peak = max(read["peak_kib"] for read in result["reads"])
    rows = [
        ("CPU seconds of the reader, median of ten", f"{median('cpu_s'):.3f}"),
        ("wall seconds, median of ten", f"{median('wall_s'):.3f}"),
        ("the reader's own peak, MiB", f"{peak / 1024:.1f}"),
        ("slowest ten requests of the process in 2 s, µs: before", f"{result['slowest_us_before']:.0f}"),
        ("the same while it was read", f"{result['slowest_us_during']:.0f}"),
        ("its page tables, KiB: before, after", f"{result['before']['VmPTE']}, {result['after']['VmPTE']}"),
        ("its own resident memory, KiB: before, after", f"{result['before']['RssAnon']}, {result['after']['RssAnon']}"),
    ]
    lines = [f"Load average at the start {load:.1f}, kernel {platform.release()}, {os.cpu_count()} processors.", ""]
    return "\n".join([*lines, markdown(["", ""], rows)])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", metavar="DIR", type=Path, help="where inspect.md and inspect.json go")
    arguments = parser.parse_args()
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    reader = target / "release/examples/read_heap"
    if not reader.exists():
        sys.exit("first: cargo build --release -p ebb-inspect --example read_heap")
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/heap"
        source = ROOT / "crates/ebb-inspect/tests/programs/heap.c"
        subprocess.run(["cc", "-O1", "-Wno-deprecated-declarations", "-pthread", source, "-o", program], check=True)
        result = measure(reader, program)
    result |= {"load": load, "machine": machine.describe()}
    report(table(result, load), arguments.o, "inspect", result)


if __name__ == "__main__":
    main()
