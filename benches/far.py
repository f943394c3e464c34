#!/usr/bin/env python3
"""What it costs that libraries lie far apart: CPython calling a library that it loaded late.

    benches/far.py [--runs N] [--hole GIB]... [--library NAME=PATH]... [--python PATH] [-o DIR]

programs/far/sums.py calls from the library of `array` into libpython and back, and allocates next to nothing. It is
run N times under each variant, in turn: as it is; with GIB GiB of address space reserved before it loads that library
(programs/far/hole.c), so that the two lie as far apart; with an allocator preloaded. One process differs from the next
by up to 10 %, by where the kernel puts things: some hundred of each are needed. The table, ratios of medians with
95 % bootstrap intervals, goes to standard output, and with the raw data and the machine to DIR as far.md and far.json.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from suite import enter, machine, markdown, report

HERE = Path(__file__).resolve().parent
PROGRAM = HERE / "programs/far/sums.py"
HOLE = HERE / "build/hole.so"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=300, metavar="N", help="processes of each variant (300)")
    parser.add_argument("--hole", type=int, action="append", default=[], metavar="GIB", help="reserve so much")
    parser.add_argument("--library", action="append", default=[], metavar="NAME=PATH", help="preload an allocator")
    parser.add_argument("--python", default="python3", metavar="PATH", help="whose array is a library (python3)")
    parser.add_argument("-o", dest="folder", type=Path, metavar="DIR", help="where far.md and far.json go")
    given = parser.parse_args()
    if given.runs < 2 or any(gib < 1 for gib in given.hole):
        parser.error("--runs is at least 2, --hole at least 1")
    for library in given.library:
        name, _, path = library.partition("=")
        if not name or not Path(path).is_file():
            parser.error(f"--library {library}: not NAME=PATH of a file")
    return given


def variants(given):
    """By name, what each has in its environment."""
    yield "as it is", {}
    for gib in given.hole:
        yield f"{gib} GiB between", {"LD_PRELOAD": str(HOLE), "HOLE_GIB": str(gib)}
    for library in given.library:
        name, _, path = library.partition("=")
        yield name, {"LD_PRELOAD": str(Path(path).resolve())}


def run(python, added):
    plain = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "VIRTUAL_ENV")}
    done = subprocess.run([python, PROGRAM], env=plain | added, capture_output=True, text=True)
    if done.returncode != 0 or done.stderr:
        sys.exit(f"far.py: {python} under {added or 'nothing'}: {done.stderr.strip() or done.returncode}")
    return int(done.stdout)


def interpreter(python):
    """The program itself, where `python` is a script that starts it."""
    done = subprocess.run([python, "-c", "import sys; print(sys.executable)"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"far.py: {python} does not run: {done.stderr.strip()}")
    return done.stdout.strip()


def table(times):
    from suite import intervals

    rows, first = [], next(iter(times.values()))
    for name, measured in times.items():
        low, middle, high = intervals.ratio(measured, first)
        beside = "" if measured is first else f"{middle:.3f} ({low:.3f} to {high:.3f})"
        rows.append([name, f"{intervals.median(measured)[1] / 1e6:.2f}", beside])
    return markdown(["", "ms a pass, median of the processes", "to the first"], rows)


def main():
    given = arguments()
    if subprocess.run(["make", "-C", HERE, "-s", "build/hole.so"], stdout=sys.stderr).returncode != 0:
        sys.exit(1)
    python, under = interpreter(given.python), dict(variants(given))
    times = {name: [] for name in under}
    for done in range(given.runs):
        print(f"\r{done} of {given.runs}", end="", file=sys.stderr)
        for name, added in under.items():
            times[name].append(run(python, added))
    print(f"\r{given.runs} of {given.runs}", file=sys.stderr)
    report(table(times), given.folder, "far", {"machine": machine.describe(), "pass_ns": times})


if __name__ == "__main__":
    enter()
    main()
