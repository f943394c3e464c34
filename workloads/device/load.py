"""The load: devices upload what they have gathered, 1.5 MB of JSON a batch on average; the same for a seed.

The last line on stdout is the summary that `ebb compare` reads (docs/workload.md).
"""

import argparse
import asyncio
import base64
import itertools
import json
import math
import random
import sys

import aiohttp

from answers.clients import WrongAnswer, count, together
from answers.summary import Outcome, report

SENSORS = ("temperature humidity pressure voltage current vibration flow level speed torque noise light").split()
TAGS = "factory night calibrated remote outdoor spare test shift-a shift-b retrofit".split()
UNITS = ("C", "%", "hPa", "V", "A", "mm/s")

MEAN_BYTES = 1_500_000


def bodies(seed: int, count: int) -> list[bytes]:
    """Bodies of different sizes: many of less than a megabyte, a few of several."""
    rng = random.Random(seed)
    weights = [rng.lognormvariate(0.0, 0.8) for _ in range(count)]
    scale = MEAN_BYTES * count / sum(weights)
    return [body(rng, max(2_000, int(weight * scale))) for weight in weights]


def body(rng: random.Random, size_bytes: int) -> bytes:
    """One batch of about that size."""
    readings: list[dict[str, object]] = []
    size = 0
    while size < size_bytes:
        samples = rng.randbytes(2 * max(16, int(rng.lognormvariate(math.log(1000), 0.9))))
        entry = {
            "sensor": rng.choice(SENSORS),
            "at_ms": 1_760_000_000_000 + len(readings) * 250,
            "unit": rng.choice(UNITS),
            "quality": rng.randint(0, 100),
            "tags": rng.sample(TAGS, k=rng.randint(0, 4)),
            "samples": base64.b64encode(samples).decode(),
        }
        readings.append(entry)
        size += len(samples) * 4 // 3 + 150
    return json.dumps({"firmware": "4.1.7", "battery": rng.random(), "readings": readings}).encode()


async def upload(session: aiohttp.ClientSession, device: str, body: bytes) -> None:
    """One upload; raises where the answer does not fit."""
    async with session.post(f"/v1/devices/{device}/readings", data=body) as response:
        answer = await response.read()
        if response.status != 201:
            raise WrongAnswer(f"{device}: status {response.status}: {answer[:200]!r}")
    told = json.loads(answer)
    if told["device"] != device or not told["sensors"]:
        raise WrongAnswer(f"{device}: {answer[:200]!r}")


async def uploads(url: str, bodies: list[bytes], clients: int, uploads: int) -> Outcome:
    """So many uploads in all, by clients at once; the bodies in turn."""
    outcome, numbers, turns = Outcome(), iter(range(uploads)), itertools.cycle(bodies)

    async def client(session: aiohttp.ClientSession) -> None:
        for number in numbers:
            await count(outcome, upload(session, f"device-{number % 200}", next(turns)))

    # A connection each time, as devices have it: any worker may take the next.
    return await together(url, outcome, [client] * clients, one_connection_each=True)


def main() -> int:
    """Runs it; 1 where an upload failed."""
    parser = argparse.ArgumentParser(prog="load", description=__doc__)
    parser.add_argument("--url", required=True, help="where the service listens")
    parser.add_argument("--uploads", type=int, default=160)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--bodies", type=int, default=24, help="different bodies")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    return report(asyncio.run(uploads(args.url, bodies(args.seed, args.bodies), args.clients, args.uploads)))


if __name__ == "__main__":
    sys.exit(main())
