"""Counts the instructions of malloc and of free of 64 bytes with callgrind.

Callgrind leaves malloc to the preloaded library (only memory checkers replace it). It
counts inside one function of the program `pair` at a time: a frame around malloc, one
around free, and the same frame around an empty function, which is subtracted. Runs of N
and of 2N pairs are subtracted from each other, so what happens once does not count.
"""

import json
import re
import subprocess
import tempfile
from pathlib import Path

from .allocators import Allocator

SIZE_BYTES = 64
PAIRS = {1: 20_000, 1000: 100_000}
# `nothing` is a single return, which belongs to the callee and not to the frame.
NOTHING_CALLS, NOTHING_INSTRUCTIONS = 1000, 1


class CountingFailed(Exception):
    """Valgrind did not give a figure that may be used; the text says why."""


def _collected(programs: Path, allocator: Allocator, watched: str, pairs: int, batch: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out"]
        command += [f"--toggle-collect={watched}", str(programs / "pair"), str(pairs), str(SIZE_BYTES), str(batch)]
        try:
            done = subprocess.run(command, env=allocator.run_environment(), capture_output=True, text=True, timeout=120)
        except FileNotFoundError:
            raise CountingFailed("valgrind is not installed (apt-get install valgrind)") from None
        except subprocess.TimeoutExpired:
            raise CountingFailed("no end after 120 s") from None
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode != 0 or not found:
        raise CountingFailed(f"exit {done.returncode} under callgrind")
    provider = json.loads(done.stdout)["malloc_provider"]
    if not allocator.provider_matches(provider):
        raise CountingFailed(f"discarded: malloc came from {Path(provider).name}")
    return int(found.group(1))


def count(programs: Path, allocator: Allocator) -> dict:
    """Instructions a call, for single pairs and for batches of 1000 in and 1000 out."""
    row = {"allocator": allocator.name, "size_bytes": SIZE_BYTES}
    if not allocator.available():
        return row | {"trouble": f"not installed ({allocator.install})"}
    try:
        frame = _collected(programs, allocator, "call_nothing", 1, 1) / NOTHING_CALLS - NOTHING_INSTRUCTIONS
        for batch, pairs in PAIRS.items():
            entry = {}
            for call in ("malloc", "free"):
                few = _collected(programs, allocator, f"call_{call}", pairs, batch)
                many = _collected(programs, allocator, f"call_{call}", 2 * pairs, batch)
                entry[call] = (many - few) / pairs - frame
            row[f"batch_{batch}"] = entry
        row["frame"] = frame
    except CountingFailed as failure:
        return row | {"trouble": str(failure)}
    return row
