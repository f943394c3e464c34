#!/usr/bin/env python3
"""Runs the benchmarks: programs x allocators, interleaved, raw data and tables out.

Needs gcc, g++, make and Python 3.11; valgrind for the instruction counts. Tables go to
standard output and with the raw data into the folder of results; progress to stderr.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from suite import allocators, instructions, machine, plans, summary, trials

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "build"
KINDS = ["return", "speed", "instructions"]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"{', '.join(KINDS)} (all)")
    parser.add_argument("--quick", action="store_true", help="less than five minutes: few rows, directions only")
    parser.add_argument("--repetitions", type=int, help="of every run (5; with --quick 2)")
    parser.add_argument("--allocators", metavar="A,B", help="only these, by name")
    parser.add_argument("--library", action="append", default=[], metavar="NAME=PATH[;VAR=VALUE]", help="another one")
    parser.add_argument("--rows", metavar="A,B", help="only rows whose label begins with one of these")
    parser.add_argument("-o", "--output", type=Path, help="folder of results (results/<date>-<machine>)")
    given = parser.parse_args()
    if set(given.kinds) - set(KINDS):
        parser.error(f"a KIND is one of {', '.join(KINDS)}")
    given.kinds = given.kinds or KINDS
    given.repetitions = given.repetitions or (2 if given.quick else 5)
    return given


def main() -> int:
    given = arguments()
    try:
        competitors = allocators.chosen(given.allocators.split(",") if given.allocators else None, given.library)
    except ValueError as problem:
        print(f"run.py: {problem}", file=sys.stderr)
        return 64
    # Standard output is for the tables.
    if subprocess.run(["make", "-C", HERE, "-s"], stdout=sys.stderr).returncode != 0:
        return 1

    here = machine.describe()
    kind = "quick-" if given.quick else ""
    output = given.output or HERE / "results" / f"{kind}{time.strftime('%Y-%m-%d')}-{machine.short_name(here)}"
    output.mkdir(parents=True, exist_ok=True)
    described = [a.describe() for a in competitors]
    present = [a for a in competitors if a.available()]
    sections = [heading(here, described, given)]
    troubles = [f"{a.name} is not installed: {a.install}" for a in competitors if not a.available()]

    jobs = {"return": plans.return_jobs(given.quick), "speed": plans.speed_jobs(given.quick, here["cpus_usable"])}
    sections_of = {"return": summary.return_section, "speed": summary.speed_section}
    for kind in given.kinds:
        sections.append(f"## {kind.capitalize()}\n")
        if kind == "instructions":
            print("counting instructions", file=sys.stderr)
            rows = [instructions.count(PROGRAMS, a) for a in competitors]
            (output / "instructions.json").write_text(json.dumps(rows, indent=1) + "\n")
            sections.append(summary.instructions_section(rows))
            troubles += [f"instructions of {r['allocator']}: {r['trouble']}" for r in rows if "trouble" in r]
            continue
        rows = [j for j in jobs[kind] if not given.rows or j.label.startswith(tuple(given.rows.split(",")))]
        trial = trials.run_all(PROGRAMS, rows, present, given.repetitions, output / f"{kind}.jsonl")
        sections.append(sections_of[kind](rows, competitors, trial))
        troubles += trial.troubles

    if [a.describe().get("sha256") for a in competitors] != [d.get("sha256") for d in described]:
        troubles.append("a library was replaced during the run: its figures mix two versions")
    if troubles:
        sections.append("## What did not run\n\n" + "\n".join(f"- {t}" for t in troubles) + "\n")
    (output / "machine.json").write_text(json.dumps({"machine": here, "allocators": described}, indent=1) + "\n")
    text = "\n".join(sections)
    (output / "tables.md").write_text(text)
    print(text)
    print(f"raw data: {output}", file=sys.stderr)
    return 1 if _failed(troubles) else 0


def _failed(troubles: list[str]) -> bool:
    """A peer that is not installed is told, and no failure; all else is."""
    return any("is not installed" not in t and "not installed (" not in t for t in troubles)


def heading(here: dict, described: list[dict], given: argparse.Namespace) -> str:
    lines = ["# Results\n", f"Taken on {time.strftime('%Y-%m-%d')}, {given.repetitions} interleaved repetitions"]
    lines[-1] += " (directions only)." if given.repetitions < 5 else ", median (least-most)."
    lines.append(
        f"{here['cpu']}, {here['cpus_usable']} usable CPUs, {here['memory_gib']} GiB, {here['system']}, "
        f"kernel {here['kernel']}, transparent huge pages {here['transparent_huge_pages']}, "
        f"load average at start {here['load_average_at_start']:.2f}.\n"
    )
    for entry in described:
        version = entry.get("version") or f"not installed ({entry['missing']})"
        lines.append(f"- {entry['name']}: {entry['what']}; {version}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
