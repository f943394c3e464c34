#!/usr/bin/env python3
"""Runs the benchmarks: programs x allocators, interleaved, raw data and tables out.

Needs gcc, g++, make and Python 3.11; valgrind for the instruction counts. Statistics and
plots are scipy's and matplotlib's, in a locked environment that is made on the first run.
Tables go to standard output and with the raw data into the folder of results; the
estimate of the time comes first, with the progress, on standard error.
"""

import argparse
import dataclasses
import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "build"
KINDS = ["return", "generator", "speed", "scale", "python", "pyperformance", "instructions"]
SEEDS = 50
# Kinds whose runs mostly sleep.
LANES = ("return", "generator", "python")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"{', '.join(KINDS)} (all)")
    parser.add_argument("--only", metavar="A,B", help="the same as KIND, in one word")
    parser.add_argument("--quick", action="store_true", help="less than six minutes: few rows, directions only")
    parser.add_argument("--repeat", type=int, metavar="N", help="of every run (5; with --quick 2)")
    parser.add_argument("--minutes", type=float, help="per kind: no run begins later; the tables have the runs that are complete")
    parser.add_argument(
        "--lanes", type=int, help="runs at a time in return, generator and python, which mostly sleep (1; with --quick 2)"
    )
    parser.add_argument("--allocators", metavar="A,B", help="only these, by name")
    parser.add_argument("--library", action="append", default=[], metavar="NAME=PATH[;VAR=VALUE]", help="another one")
    parser.add_argument("--rows", metavar="A,B", help="only rows whose label begins with one of these")
    parser.add_argument("--seed", type=int, help="the generator's first seed (drawn by the system, and recorded)")
    parser.add_argument("--seeds", type=int, help=f"how many follow ({SEEDS}; with --quick 4)")
    parser.add_argument("--estimate", action="store_true", help="print how long it would take, and end")
    parser.add_argument("-o", "--output", type=Path, help="folder of results (build/results/<date>-<machine>)")
    given = parser.parse_args()
    given.kinds = given.kinds + (given.only.split(",") if given.only else []) or KINDS
    if set(given.kinds) - set(KINDS):
        parser.error(f"a KIND is one of {', '.join(KINDS)}")
    given.repetitions = given.repeat or (2 if given.quick else 5)
    given.lanes = given.lanes or (2 if given.quick else 1)
    given.seeds = given.seeds or (4 if given.quick else SEEDS)
    # The seeds are random: the system gives the first, and the result names it.
    given.seed = int.from_bytes(os.urandom(4)) if given.seed is None else given.seed
    if min(given.repetitions, given.lanes, given.seeds) < 1:
        parser.error("--repeat, --lanes and --seeds are at least 1")
    return given


def jobs_of(kind: str, given: argparse.Namespace, competitors: list) -> list:
    """The rows of a kind, narrowed to what was asked for."""
    cpus = len(os.sched_getaffinity(0))
    jobs = {
        "return": lambda: plans.return_jobs(given.quick),
        "generator": lambda: plans.generator_jobs(given.quick, given.seed, given.seeds),
        "speed": lambda: plans.speed_jobs(given.quick, cpus),
        "scale": lambda: plans.scale_jobs(given.quick),
        "python": lambda: pythons.burst_jobs(given.quick),
        "pyperformance": lambda: pythons.pyperformance_jobs(given.quick),
    }.get(kind, list)()
    if given.allocators or given.library:
        # Named on the command line: then every row is for them.
        named = tuple(a.name for a in competitors)
        jobs = [dataclasses.replace(j, only=_named_for(j, named)) for j in jobs]
    jobs = [j for j in jobs if not given.rows or j.label.startswith(tuple(given.rows.split(",")))]
    return jobs


def _named_for(job, named: tuple[str, ...]) -> tuple[str, ...]:
    """Of the allocators named, those of the row; in the kinds of CPython others compare nothing."""
    return tuple(set(named) & set(job.only)) if job.kind in ("python", "pyperformance") else named


def lanes_of(kind: str, given: argparse.Namespace) -> int:
    return given.lanes if kind in LANES else 1


def counted(allocator, given: argparse.Namespace) -> bool:
    """Whether its instructions are: settings change none, and the quick form has few."""
    if given.allocators or given.library:
        return True
    return not allocator.environment and (not given.quick or allocator.name in plans.SHORT_LIST)


def limit_s(given: argparse.Namespace) -> float:
    return given.minutes * 60 if given.minutes else float("inf")


def estimate(given: argparse.Namespace, competitors: list) -> None:
    present = [a for a in competitors if a.available()]
    total_s = 0.0
    for kind in given.kinds:
        if kind == "instructions":
            runs = len([a for a in present if counted(a, given)])
            expected_s = 11.0 * runs
        else:
            jobs = jobs_of(kind, given, competitors)
            runs = len(trials.schedule(jobs, present, given.repetitions))
            expected_s = trials.expected_s(jobs, present, given.repetitions, lanes_of(kind, given))
            expected_s = min(expected_s, limit_s(given))
        total_s += expected_s
        print(f"{kind}: {runs} runs, about {expected_s / 60:.0f} minutes", file=sys.stderr)
    end = time.strftime("%H:%M", time.localtime(time.time() + total_s))
    print(f"all: about {total_s / 60:.0f} minutes, until {end}, if nothing else runs", file=sys.stderr)


def main() -> int:
    given = arguments()
    try:
        competitors = allocators.chosen(given.allocators.split(",") if given.allocators else None, given.library)
    except ValueError as problem:
        print(f"run.py: {problem}", file=sys.stderr)
        return 64
    estimate(given, competitors)
    if given.estimate:
        return 0
    # Standard output is for the tables.
    if subprocess.run(["make", "-C", HERE, "-s"], stdout=sys.stderr).returncode != 0:
        return 1
    quick = "quick-" if given.quick else ""
    folder = f"{quick}{time.strftime('%Y-%m-%d')}-{machine.short_name(machine.describe())}"
    output = given.output or PROGRAMS / "results" / folder
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
    present = [a for a in competitors if a.available()]
    jobs = jobs_of(kind, given, competitors)
    shown = [a for a in competitors if any(j.takes(a) for j in jobs) or kind == "instructions" and counted(a, given)]
    described = [a.describe() for a in shown]
    if kind == "instructions":
        print("counting instructions", file=sys.stderr)
        rows = [instructions.count(PROGRAMS, a) for a in shown]
        (output / "instructions.json").write_text(json.dumps(rows, indent=1) + "\n")
        section = summary.instructions_section(rows)
        available = {a.name for a in present}
        troubles = [f"{r['allocator']}: {r['trouble']}" for r in rows if "trouble" in r and r["allocator"] in available]
    else:
        raw = output / f"{kind}.jsonl"
        trial = trials.run_all(PROGRAMS, jobs, present, given.repetitions, raw, lanes_of(kind, given), limit_s(given))
        section = SECTIONS[kind](jobs, shown, trial)
        troubles = trial.troubles
    if [a.describe().get("sha256") for a in shown] != [d.get("sha256") for d in described]:
        troubles.append("a library was replaced during the run: its figures mix two versions")

    text = "\n".join([heading(kind, here, described, given), section])
    absent = [f"{a.name} is not installed: {a.why_missing()}" for a in shown if not a.available()]
    if absent or troubles:
        text += "\n### What did not run\n\n" + "\n".join(f"- {t}" for t in absent + sorted(set(troubles))) + "\n"
    (output / f"{kind}.md").write_text(text)
    record = {"machine": here, "allocators": described, "repetitions": given.repetitions}
    record |= {"command": command_line(), "lanes": lanes_of(kind, given)}
    if kind == "generator":
        record |= {"first_seed": given.seed, "seeds": given.seeds}
    if kind in ("speed", "python", "pyperformance"):
        record["programs"] = [j.program.describe() for j in jobs if j.program]
    (output / f"{kind}-machine.json").write_text(json.dumps(record, indent=1) + "\n")
    print(text)
    return bool(troubles)


def command_line() -> str:
    """As it was typed, folders left out: they say nothing of the run."""
    return shlex.join(["benches/run.py", *(re.sub(r"(^|=)/\S*/", r"\1", word) for word in sys.argv[1:])])


def heading(kind: str, here: dict, described: list[dict], given: argparse.Namespace) -> str:
    how = f"{given.repetitions} interleaved repetitions, median (95 % bootstrap interval)"
    if kind == "instructions":
        how = "instructions a call, counted by callgrind"
    elif kind == "generator":
        how = f"one run of each of {given.seeds} seeds from {given.seed} on, which the system drew"
    elif given.repetitions < 5:
        how += "; too few to be more than a direction"
    if lanes_of(kind, given) > 1:
        how += f"; {given.lanes} runs at a time"
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
    from suite import enter

    enter()
    from suite import allocators, instructions, machine, plans, pythons, summary, timings, trials

    SECTIONS = {
        "return": summary.return_section,
        "generator": summary.generator_section,
        "speed": timings.speed_section,
        "scale": timings.scale_section,
        "python": pythons.burst_section,
        "pyperformance": pythons.pyperformance_section,
    }
    sys.exit(main())
