"""CPython under the allocators: a burst of small objects in many versions, pyperformance, and the start.

The lists are fixed here before anything is measured. `EBB_TEST_PYTHONS` names the interpreters of the burst,
separated by colons (`ci/pythons.sh --list` prints those that it finds); without it the locked environment's is taken.
"""

import os
from pathlib import Path

from . import intervals, markdown
from .allocators import OURS
from .plans import Job
from .programs import PROGRAMS, Program
from .tables import Figure, present, titled

MB = 1_000_000
OFF = "ebbmalloc-python-off"
BURST_COLUMNS = ("glibc", "glibc-python-malloc", "jemalloc", OFF, OURS)
REST_S = 6
VALUES, WARMUPS = 3, 1

# The programs of pyperformance that need only the standard library and make objects: benchmark with its arguments,
# and how often it is repeated for one value, so that a value takes 0.1 to 0.4 s.
PYPERFORMANCE = {
    "async_generators": 1,
    "async_tree none": 1,
    "async_tree memoization": 1,
    "chaos": 6,
    "comprehensions": 15000,
    "coroutines": 15,
    "deepcopy": 700,
    "deltablue": 80,
    "float": 4,
    "gc_collect": 60,
    "generators": 6,
    "go": 2,
    "hexiom": 40,
    "json_dumps": 25,
    "json_loads": 600,
    "logging format": 6000,
    "meteor_contest": 4,
    "nqueens": 3,
    "pathlib": 15,
    "pickle pickle": 2500,
    "pickle pickle --pure-python": 40,
    "pickle unpickle --pure-python": 50,
    "pprint": 1,
    "pyflate": 1,
    "raytrace": 1,
    "regex_compile": 2,
    "richards": 6,
    "sqlite_synth": 120000,
    "telco": 40,
    "xml_etree generate": 5,
}


def burst_jobs(quick: bool) -> list[Job]:
    """A burst in each interpreter; the quick form has the first one."""
    return [_burst(python, quick) for python in interpreters()[: 1 if quick else None]]


def pyperformance_jobs(quick: bool) -> list[Job]:
    """The start, then the programs; the quick form has a few."""
    return [_start(quick), *(_pyperformance(name) for name in list(PYPERFORMANCE)[:: 10 if quick else 1])]


def interpreters() -> list[str]:
    """Paths, or what stands for the locked environment's."""
    return [path for path in os.environ.get("EBB_TEST_PYTHONS", "").split(":") if path] or ["{python}"]


def _burst(python: str, quick: bool) -> Job:
    rest_s = 2 if quick else REST_S
    # A free-threaded build ends at the start with PYTHONMALLOC=malloc.
    columns = tuple(c for c in BURST_COLUMNS if not (python.endswith("t") and "malloc" in c.split("-")[2:]))
    script = str(PROGRAMS / "python/burst.py")
    program = Program(
        name=f"burst, {'python' if python == '{python}' else _short(python)}",
        command=(python, script, "{scratch}/report.json", "--rest", str(rest_s)),
        version=(python, "--version"),
        report="report.json",
        own_libc=_starts_with(python, b"#!"),
    )
    return Job("python", program.name, program=program, seconds=rest_s + 2, only=columns, group="burst")


def _short(python: str) -> str:
    """A name that tells interpreters apart and nothing of the machine's user."""
    path = Path(python)
    version = path.parent.parent.name if path.parent.name == "bin" else path.parent.name
    return f"{path.name} of {version}" if version not in ("usr", "") else path.name


def _starts_with(path: str, mark: bytes) -> bool:
    return Path(path).is_file() and Path(path).read_bytes()[: len(mark)] == mark


def _start(quick: bool) -> Job:
    program = Program("python -c pass", ("{python}", "-c", "pass"), ("{python}", "--version"), times=10 if quick else 40)
    return Job("pyperformance", program.name, program=program, seconds=0.9, only=("glibc", OFF, OURS), group="start")


def _pyperformance(name: str) -> Job:
    benchmark, *arguments = name.split()
    script = f"{{pyperformance}}/bm_{benchmark}/run_benchmark.py"
    counts = ("--values", str(VALUES), "--warmups", str(WARMUPS), "--loops", str(PYPERFORMANCE[name]))
    program = Program(
        name=name.replace(" ", "_").replace("--", ""),
        command=("{python}", script, *arguments, "--worker", *counts, "-o", "{scratch}/report.json"),
        version=("{python}", "--version"),
        # The same order of sets and dictionaries under both, and in every run.
        environment={"PYTHONHASHSEED": "1"},
        report="report.json",
    )
    return Job("pyperformance", program.name, program=program, seconds=1.7, only=(OFF, OURS), group="speed")


RESTED = Figure("Burst: MB above the start, {rest} s after the burst", lambda run: run["rested_bytes"] / MB)
PEAK_OF_BURST = Figure("Burst: MB above the start at its peak", lambda run: run["peak_bytes"] / MB)
BLOCKS = Figure("Burst: blocks of CPython's own allocator in use at the start", lambda run: run["own_blocks"], 0)
START = Figure("Start: milliseconds of `python -c pass`", lambda run: 1000 * run["wall_s"], 2)
START_CPU = Figure("Start: its CPU milliseconds", lambda run: 1000 * run["cpu_s"], 2)

TIME = Figure("time", lambda run: run["value_s"])
CPU = Figure("CPU time of the whole run", lambda run: run["cpu_s"])
PEAK = Figure("peak of resident memory", lambda run: run["peak_rss_bytes"])


def burst_section(jobs: list, allocators: list, trial) -> str:
    rest_s = jobs[0].program.command[-1] if jobs else REST_S
    rested = Figure(RESTED.title.format(rest=rest_s), RESTED.of)
    return "\n".join(titled(jobs, allocators, trial, figure) for figure in (rested, PEAK_OF_BURST, BLOCKS))


def pyperformance_section(jobs: list, allocators: list, trial) -> str:
    starts, programs = ([job for job in jobs if job.group == group] for group in ("start", "speed"))
    parts = [titled(starts, allocators, trial, figure) for figure in (START, START_CPU)] if starts else []
    return "\n".join([*parts, against_off(programs, allocators, trial)])


def against_off(jobs: list, allocators: list, trial) -> str:
    """Of each program ours over ours with python:off, the worst first, and the geometric means."""
    ours, off = (next((a for a in allocators if a.name == name), None) for name in (OURS, OFF))
    if not ours or not off:
        return ""
    figures = (TIME, CPU, PEAK)
    rows = []
    for job in jobs:
        pairs = [(present(trial, job, ours, f), present(trial, job, off, f)) for f in figures]
        if all(a and b for a, b in pairs):
            rows.append((job.label, [intervals.ratio(a, b) for a, b in pairs]))
    if not rows:
        return ""
    rows.sort(key=lambda row: -row[1][0][1])
    head = ["", *(figure.title for figure in figures)]
    means = [intervals.geometric_mean([ratios[n][1] for _, ratios in rows]) for n in range(len(figures))]
    most = [max(ratios[n][1] for _, ratios in rows) for n in range(len(figures))]
    lines = [[f"geometric mean of {len(rows)}", *(f"{m:.3f}" for m in means)], ["most", *(f"{m:.3f}" for m in most)]]
    lines += [[label, *(f"{mid:.3f} ({low:.3f}-{high:.3f})" for low, mid, high in ratios)] for label, ratios in rows]
    title = f"### pyperformance: {OURS} over {OFF}\n"
    note = f"Below 1 is better. Time: the least of {VALUES} values of a run, median of the runs.\n"
    return "\n".join([title, note, markdown(head, lines), ""])
