"""A burst of small objects in CPython, and what the process holds after it.

    burst.py REPORT [--rest SECONDS]

Two million tuples of a string and a float are made; 200 of them, drawn at random, are kept; the others go. REPORT, a
JSON file, says what was resident above the start at the end of the burst and after the rest, and how many blocks
CPython's own allocator had in use at the start: 0 where malloc serves it. Runs in every CPython from 3.8 on, with no
module that would be left out of a small installation.
"""

import gc
import json
import random
import sys
import time

OBJECTS, KEPT = 2_000_000, 200


def resident_bytes():
    """`Rss` of smaps_rollup: a walk of the page tables, and so exact."""
    with open("/proc/self/smaps_rollup") as file:
        for line in file:
            if line.startswith("Rss:"):
                return int(line.split()[1]) * 1024
    raise OSError("smaps_rollup has no Rss")


def main():
    report, rest_s = sys.argv[1], float(sys.argv[3]) if sys.argv[2:3] == ["--rest"] else 6.0
    own_blocks = sys.getallocatedblocks()
    resident_bytes()
    start = resident_bytes()
    # A free-threaded build's collector goes through the whole heap again and again while it grows: minutes.
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        gc.disable()
    begun = time.perf_counter()
    objects = [(str(i), i * 1.5) for i in range(OBJECTS)]
    kept = [objects[i] for i in random.Random(1).sample(range(OBJECTS), KEPT)]
    peak = resident_bytes()
    del objects
    gc.collect()
    burst_s = time.perf_counter() - begun
    time.sleep(rest_s)
    found = {
        "version": sys.version.split()[0],
        "own_blocks": own_blocks,
        "kept": len(kept),
        "peak_bytes": peak - start,
        "rested_bytes": resident_bytes() - start,
        "burst_s": burst_s,
    }
    with open(report, "w") as file:
        json.dump(found, file)


main()
