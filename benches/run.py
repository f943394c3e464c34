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
    quick = "quick-" if given.quick else ""
    folder = f"{quick}{time.strftime('%Y-%m-%d')}-{machine.short_name(machine.describe())}"
    output = given.output or HERE / "results" / folder
    output.mkdir(parents=True, exist_ok=True)
    failed = False
    for kind in given.kinds:
        failed |= measure(kind, competitors, given, output)
    print(f"tables and raw data: {output}", file=sys.stderr)
    return 1 if failed else 0


def measure(kind: str, competitors: list, given: argparse.Namespace, output: Path) -> bool:
    """One kind of benchmark: KIND.md with the tables, KIND.json or .jsonl with the raw data
    and KIND-machine.json with what it was taken on. Returns whether something failed."""
    here = machine.describe()
    described = [a.describe() for a in competitors]
    present = [a for a in competitors if a.available()]
    absent = [f"{a.name} is not installed: {a.install}" for a in competitors if not a.available()]
    if kind == "instructions":
        print("counting instructions", file=sys.stderr)
        rows = [instructions.count(PROGRAMS, a) for a in competitors]
        (output / "instructions.json").write_text(json.dumps(rows, indent=1) + "\n")
        section = summary.instructions_section(rows)
        available = {a.name for a in present}
        troubles = [f"{r['allocator']}: {r['trouble']}" for r in rows if "trouble" in r and r["allocator"] in available]
    else:
        jobs = plans.return_jobs(given.quick) if kind == "return" else plans.speed_jobs(given.quick, here["cpus_usable"])
        jobs = [j for j in jobs if not given.rows or j.label.startswith(tuple(given.rows.split(",")))]
        trial = trials.run_all(PROGRAMS, jobs, present, given.repetitions, output / f"{kind}.jsonl")
        section = (summary.return_section if kind == "return" else summary.speed_section)(jobs, competitors, trial)
        troubles = trial.troubles
    if [a.describe().get("sha256") for a in competitors] != [d.get("sha256") for d in described]:
        troubles.append("a library was replaced during the run: its figures mix two versions")

    text = "\n".join([heading(kind, here, described, given), section])
    if absent or troubles:
        text += "\n### What did not run\n\n" + "\n".join(f"- {t}" for t in absent + troubles) + "\n"
    (output / f"{kind}.md").write_text(text)
    record = {"machine": here, "allocators": described, "repetitions": given.repetitions}
    (output / f"{kind}-machine.json").write_text(json.dumps(record, indent=1) + "\n")
    print(text)
    return bool(troubles)


def heading(kind: str, here: dict, described: list[dict], given: argparse.Namespace) -> str:
    how = f"{given.repetitions} interleaved repetitions, median (least-most)"
    if kind == "instructions":
        how = "instructions a call, counted by callgrind"
    elif given.repetitions < 5:
        how += "; too few to be more than a direction"
    lines = [
        f"## {kind.capitalize()}\n",
        f"Taken on {time.strftime('%Y-%m-%d')}: {how}. {here['cpu']}, {here['cpus_usable']} usable CPUs, "
        f"{here['memory_gib']} GiB, {here['system']}, kernel {here['kernel']}, transparent huge pages "
        f"{here['transparent_huge_pages']}, load average at start {here['load_average_at_start']:.2f}.\n",
    ]
    for entry in described:
        version = entry.get("version") or f"not installed ({entry['missing']})"
        lines.append(f"- {entry['name']}: {entry['what']}; {version}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
