#!/usr/bin/env python3
"""Prints the slowest and the skipped tests since `ci/report.py --clear`, and what would install what the latter need.

The times are written by ci/tests.py, the skips by crates/test-needs and workloads/answers/needs.py: kind, package or reason, test.
"""

import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The loom and stress builds have folders of their own in it.
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
COUNT = 20


def lines(name):
    file = TARGET / name
    if sys.argv[1:] == ["--clear"]:
        file.unlink(missing_ok=True)
    return [line.split("\t") for line in file.read_text().splitlines()] if file.exists() else []


times = sorted(((float(seconds), name) for seconds, name in lines("times.tsv")), reverse=True)
skips = sorted(set(map(tuple, lines("skipped.tsv"))))
if times:
    print(f"\nThe slowest of {len(times)} tests, which took {sum(seconds for seconds, _ in times):.0f} s in sum:")
    for seconds, name in times[:COUNT]:
        print(f"  {seconds:7.1f} s  {name}")
if skips:
    print("\nSkipped:")
    for kind, what, test in skips:
        print(f"  {test}: {f'needs the package {what}' if kind == 'package' else what}")
if packages := sorted({what for kind, what, _ in skips if kind == "package"}):
    install = "apt-get update && apt-get install --no-install-recommends"
    print(f"\nTo run them too, as root:\n\n    {install} {' '.join(packages)}")
