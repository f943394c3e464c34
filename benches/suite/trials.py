"""Runs jobs under allocators: A B C, A B C, ... so that a slow minute of the machine
falls on all of them. Each run is one line of raw data, written as soon as it is there.

`lanes` runs go on at the same time: for rows that mostly sleep while memory is watched.
"""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from . import programs
from .allocators import Allocator
from .plans import Job


@dataclass
class Trial:
    """All runs of a session, by (kind, label, allocator), and what went wrong."""

    runs: dict = field(default_factory=dict)
    troubles: list = field(default_factory=list)

    def of(self, job: Job, allocator: Allocator) -> list[dict]:
        return self.runs.get((job.kind, job.label, allocator.name), [])


def run_once(build: Path, job: Job, allocator: Allocator) -> dict:
    """One run. The record has `trouble` when it yielded nothing that may be used."""
    command = job.program.command if job.program else job.command
    record = {"job": job.label, "allocator": allocator.name, "command": programs.as_published(command)}
    try:
        if job.program:
            return record | programs.run_once(build, job.program, allocator, job.timeout_s)
        return record | _run_ours(build, job, allocator)
    except subprocess.TimeoutExpired:
        return record | {"trouble": f"no end after {job.timeout_s} s"}
    except programs.RunFailed as failure:
        return record | {"trouble": str(failure)}


def _run_ours(build: Path, job: Job, allocator: Allocator) -> dict:
    command = [str(build / job.command[0]), *job.command[1:]]
    environment = allocator.run_environment()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=job.timeout_s)
    last_words = done.stderr.strip().splitlines()[-1:]
    try:
        result = json.loads(done.stdout)
    except ValueError:
        raise programs.RunFailed(f"exit {done.returncode}: {' '.join(last_words) or 'no output'}") from None
    provider = result["malloc_provider"]
    result["malloc_provider"] = os.path.basename(provider)
    if not allocator.provider_matches(provider):
        result["trouble"] = f"discarded: malloc came from {os.path.basename(provider)}"
    elif done.returncode != 0:
        wrong = result.get("wrong_bytes")
        result["trouble"] = f"exit {done.returncode}" + (f": {wrong} bytes of live objects changed" if wrong else "")
    return result


def schedule(jobs: list[Job], allocators: list[Allocator], repetitions: int) -> list[tuple[int, Job, Allocator]]:
    """Repetition, then row, then allocator."""
    return [
        (repetition, job, allocator)
        for repetition in range(1, repetitions + 1)
        for job in jobs
        if repetition <= job.repetitions_most
        for allocator in allocators
        if job.takes(allocator)
    ]


def expected_s(jobs: list[Job], allocators: list[Allocator], repetitions: int, lanes: int) -> float:
    return sum(job.seconds + 0.03 for _, job, _ in schedule(jobs, allocators, repetitions)) / lanes


def run_all(
    build: Path,
    jobs: list[Job],
    allocators: list[Allocator],
    repetitions: int,
    raw: Path,
    lanes: int = 1,
    limit_s: float = float("inf"),
) -> Trial:
    """Rows under other huge pages come last, together: the setting is the machine's. After `limit_s`
    no run begins; what was measured until then counts, and the missing runs are told."""
    session = _Session(build, raw.open("w"), len(schedule(jobs, allocators, repetitions)), limit_s)
    with session.lines:
        session.run(schedule([j for j in jobs if not j.huge_pages], allocators, repetitions), lanes)
        for setting in ("always", "eager"):
            runs = schedule([j for j in jobs if j.huge_pages == setting], allocators, repetitions)
            if runs:
                with huge_pages_always(setting == "eager") as trouble:
                    if trouble:
                        session.trial.troubles += sorted({f"{job.label}: not measured: {trouble}" for _, job, _ in runs})
                    else:
                        session.run(runs, lanes)
    if session.skipped:
        session.trial.troubles.append(f"{session.skipped} of {session.total} runs were not made: the time was over")
    return session.trial


class _Session:
    """Writes each record and tells the progress; runs may end in several lanes at once."""

    def __init__(self, build: Path, lines, total: int, limit_s: float):
        self.build, self.lines, self.total, self.limit_s, self.skipped = build, lines, total, limit_s, 0
        self.trial, self.done, self.begun = Trial(), 0, time.monotonic()
        self.lock = threading.Lock()

    def run(self, runs: list, lanes: int) -> None:
        with ThreadPoolExecutor(max_workers=lanes) as pool:
            list(pool.map(self._one, runs))

    def _one(self, run: tuple[int, Job, Allocator]) -> None:
        repetition, job, allocator = run
        if time.monotonic() - self.begun > self.limit_s:
            with self.lock:
                self.skipped += 1
            return
        record = {"repetition": repetition} | run_once(self.build, job, allocator)
        with self.lock:
            self.done += 1
            self.lines.write(json.dumps(compact(record)) + "\n")
            self.lines.flush()
            if "trouble" in record:
                self.trial.troubles.append(f"{job.label} under {allocator.name}: {record['trouble']}")
            else:
                self.trial.runs.setdefault((job.kind, job.label, allocator.name), []).append(record)
            left_s = (time.monotonic() - self.begun) / self.done * (self.total - self.done)
            progress = f"{self.done}/{self.total} {job.label} / {allocator.name}, about {left_s:.0f} s left"
            print(progress + (f": {record['trouble']}" if "trouble" in record else ""), file=sys.stderr)


SAMPLE_KEYS = ["rss_bytes", "anonymous_bytes", "lazy_free_bytes", "statm_bytes"]


def compact(record: dict) -> dict:
    """Samples as rows without their keys: the raw file stays readable and small."""
    if "samples" not in record:
        return record
    rows = [[s["at_s"], *(s["memory"][k] for k in SAMPLE_KEYS), s["above_live_bytes"]] for s in record["samples"]]
    return record | {"sample_columns": ["at_s", *SAMPLE_KEYS, "above_live_bytes"], "samples": rows}


HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage")
ALWAYS = {"enabled": "always"}
EAGER = ALWAYS | {"khugepaged/scan_sleep_millisecs": "10", "khugepaged/alloc_sleep_millisecs": "10"}


def _present(text: str) -> str:
    """`always [madvise] never` says madvise."""
    return text.split("[")[1].split("]")[0] if "[" in text else text.strip()


@contextlib.contextmanager
def huge_pages_always(eager: bool):
    """Sets transparent huge pages to `always`, and back; yields None meanwhile, or the reason why that cannot be.

    The setting is the whole machine's: only root may, and only while nothing else is measured. With `eager`, khugepaged
    scans without pause, so that what it would do to returned memory in minutes shows within the seconds of a run.
    """
    before = {}
    try:
        try:
            for name, value in (EAGER if eager else ALWAYS).items():
                before[name] = _present((HUGE_PAGES / name).read_text())
                (HUGE_PAGES / name).write_text(value)
            trouble = None
        except OSError as problem:
            trouble = f"transparent huge pages cannot be set to always here: {problem.strerror}"
        yield trouble
    finally:
        for name, value in before.items():
            with contextlib.suppress(OSError):
                (HUGE_PAGES / name).write_text(value)
