#!/usr/bin/env python3
"""How long ebbmalloc's locks are held: the longest critical section.

    cargo build --release -p ebbmalloc-core --example holds --features holds
    benches/holds.py [--repeat N] [-o DIR]

The program (crates/ebbmalloc-core/examples/holds.rs) drives a heap on the real kernel from one thread, always
with the same requests and ticks, and times each hold of each lock by the processor's counter. It is run N times.
Something else that took the processor during a hold lengthens it in one run and hardly ever in all of them, so the
least of each hold over the runs is what the hold takes. The table goes to standard output, and with the machine to DIR
as holds.md and holds.json.
"""

import argparse
import array
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from suite import machine, markdown, report

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ["idle", "tiny", "mid", "threads", "large"]
# In the order of `Rank` in crates/ebbmalloc-core/src/base/lock.rs.
LOCKS = ["figures", "caches", "arenas", "bin", "arena", "profile", "metadata"]
LIMIT_NS = 50_000
# The first request of a process, which reserves address space, holds its bin's lock twice.
FIRST_REQUEST = 2


def holds_of(program, name, file):
    # Without address space randomisation every run sees the same addresses.
    subprocess.run(["setarch", "-R", program, name, file], check=True)
    data = Path(file).read_bytes()
    at, holds = 0, []
    for _ in LOCKS:
        (count,) = struct.unpack_from("Q", data, at)
        at += 8
        holds.append(array.array("I", data[at : at + 4 * count]))
        at += 4 * count
    return holds


def measure(program, name, repeat, file):
    runs = [holds_of(program, name, file) for _ in range(repeat)]
    for lock, *of_runs in zip(LOCKS, *runs, strict=True):
        if len({len(holds) for holds in of_runs}) != 1:
            sys.exit(f"{name}: the runs hold the lock '{lock}' different numbers of times")
        if not of_runs[0]:
            continue
        least = [min(same) for same in zip(*of_runs, strict=True)]
        yield {
            "program": name,
            "lock": lock,
            "holds": len(least),
            "first_request_us": max(least[:FIRST_REQUEST]) / 1000,
            "longest_other_us": max(least[FIRST_REQUEST:], default=0) / 1000,
            "others_above_50_us": sum(held > LIMIT_NS for held in least[FIRST_REQUEST:]),
            "longest_in_one_run_us": max(map(max, of_runs)) / 1000,
        }


def table(rows):
    head = [
        "program",
        "lock",
        "holds",
        "first request, us",
        "longest other, us",
        "others above 50 us",
        "longest in any run, us",
    ]
    cells = [[f"{cell:.1f}" if isinstance(cell, float) else str(cell) for cell in row.values()] for row in rows]
    return markdown(head, [[*row, f"{float(last):.0f}"] for *row, last in cells])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=7, metavar="N", help="runs of each program (7)")
    parser.add_argument("-o", dest="folder", type=Path, metavar="DIR", help="where holds.md and holds.json go")
    options = parser.parse_args()
    program = ROOT / "target/release/examples/holds"
    if not program.exists():
        sys.exit(f"{program} is missing: cargo build --release -p ebbmalloc-core --example holds --features holds")
    result = {"machine": machine.describe(), "runs": options.repeat, "rows": []}
    with tempfile.NamedTemporaryFile() as file:
        for name in PROGRAMS:
            print(f"{name} ...", file=sys.stderr)
            result["rows"] += measure(program, name, options.repeat, file.name)
    report(table(result["rows"]), options.folder, "holds", result)


if __name__ == "__main__":
    main()
