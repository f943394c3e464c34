"""Runs jobs under allocators: A B C, A B C, ... so that a slow minute of the machine
falls on all of them. Each run is one line of raw data, written as soon as it is there.
"""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from .allocators import Allocator
from .plans import Job


@dataclass
class Trial:
    """All runs of a session, by (kind, label, allocator), and what went wrong."""

    runs: dict = field(default_factory=dict)
    troubles: list = field(default_factory=list)

    def of(self, job: Job, allocator: Allocator) -> list[dict]:
        return self.runs.get((job.kind, job.label, allocator.name), [])


def run_once(programs: Path, job: Job, allocator: Allocator) -> dict:
    """One run. The record has `trouble` when it yielded nothing that may be used."""
    record = {"job": job.label, "allocator": allocator.name, "command": " ".join(job.command)}
    command = [str(programs / job.command[0]), *job.command[1:]]
    try:
        done = subprocess.run(
            command, env=allocator.run_environment(), capture_output=True, text=True, timeout=job.timeout_s
        )
    except subprocess.TimeoutExpired:
        return record | {"trouble": f"no end after {job.timeout_s} s"}
    last_words = done.stderr.strip().splitlines()[-1:]
    try:
        result = json.loads(done.stdout)
    except ValueError:
        return record | {"trouble": f"exit {done.returncode}: {' '.join(last_words) or 'no output'}"}
    provider = result["malloc_provider"]
    result["malloc_provider"] = os.path.basename(provider)
    record |= result
    if not allocator.provider_matches(provider):
        record["trouble"] = f"discarded: malloc came from {os.path.basename(provider)}"
    elif done.returncode != 0:
        wrong = result.get("wrong_bytes")
        record["trouble"] = f"exit {done.returncode}" + (f": {wrong} bytes of live objects changed" if wrong else "")
    return record


def run_all(programs: Path, jobs: list[Job], allocators: list[Allocator], repetitions: int, raw: Path) -> Trial:
    trial = Trial()
    total = repetitions * len(jobs) * len(allocators)
    number, begun = 0, time.monotonic()
    with raw.open("w") as lines:
        for repetition in range(1, repetitions + 1):
            for job in jobs:
                for allocator in allocators:
                    number += 1
                    record = {"repetition": repetition} | run_once(programs, job, allocator)
                    lines.write(json.dumps(compact(record)) + "\n")
                    lines.flush()
                    if "trouble" in record:
                        trial.troubles.append(f"{job.label} under {allocator.name}: {record['trouble']}")
                    else:
                        trial.runs.setdefault((job.kind, job.label, allocator.name), []).append(record)
                    left_s = (time.monotonic() - begun) / number * (total - number)
                    progress = f"{number}/{total} {job.label} / {allocator.name}, about {left_s:.0f} s left"
                    print(progress + (f": {record['trouble']}" if "trouble" in record else ""), file=sys.stderr)
    return trial


def compact(record: dict) -> dict:
    """Samples as rows without their keys: the raw file stays readable and small."""
    if "samples" not in record:
        return record
    keys = ["rss_bytes", "anonymous_bytes", "lazy_free_bytes", "statm_bytes"]
    rows = [[s["at_s"], *(s["memory"][k] for k in keys), s["above_live_bytes"]] for s in record["samples"]]
    return record | {"sample_columns": ["at_s", *keys, "above_live_bytes"], "samples": rows}
