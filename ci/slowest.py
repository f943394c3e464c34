#!/usr/bin/env python3
"""Prints the slowest tests that ci/tests.py has run since `ci/slowest.py --clear`."""

import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIST = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "times.tsv"
COUNT = 20

if sys.argv[1:] == ["--clear"]:
    LIST.unlink(missing_ok=True)
elif LIST.exists():
    times = [line.rstrip("\n").split("\t", 1) for line in LIST.open()]
    times.sort(key=lambda line: -float(line[0]))
    total = sum(float(seconds) for seconds, _ in times)
    print(f"\nThe slowest of {len(times)} tests, which took {total:.0f} s in sum:")
    for seconds, name in times[:COUNT]:
        print(f"  {float(seconds):7.1f} s  {name}")
