"""Time of CPython's full collections while a tree of asyncio tasks grows, in milliseconds, for each of TREES trees.

usage: collector.py [TREES]
"""

import asyncio
import gc
import sys
import time

DEPTH, CHILDREN = 6, 6


async def grow(depth):
    if depth:
        await asyncio.gather(*(grow(depth - 1) for _ in range(CHILDREN)))
    else:
        await asyncio.sleep(0)


def full_collections():
    """Seconds that full collections take while one tree grows."""
    seconds = 0.0

    def note(phase, info):
        nonlocal seconds
        if info["generation"] == 2:
            seconds += time.perf_counter() if phase == "stop" else -time.perf_counter()

    gc.callbacks.append(note)
    asyncio.run(grow(DEPTH))
    gc.callbacks.remove(note)
    return seconds


if __name__ == "__main__":
    trees = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    print(*(f"{1000 * full_collections():.0f}" for _ in range(trees)))
