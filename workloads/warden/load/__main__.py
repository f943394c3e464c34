"""The command line of the load: fill the log, warm up, and scan for a day.

The last line on stdout of warm and day is the summary that `ebb compare` reads (docs/workload.md).
"""

import argparse
import asyncio
from collections.abc import Callable
from pathlib import Path
import random
import re
import sys
import time

import aiohttp

from answers.summary import Outcome, report

from .bots import FRONT_PAGE, Hit, hits, log_lines

FIGURE = re.compile(rb"<p>(\d+) requests, \d+ visitors remembered</p>")


class NotAsExpected(Exception):
    """An answer that is not the one that the service should give."""


def fill(args: argparse.Namespace) -> int:
    """The older files of the log: those before the one that the service has begun."""
    begun = min(int(path.stem) for path in args.log.glob("*.jsonl"))
    for number in range(begun - args.files, begun):
        with (args.log / f"{number}.jsonl").open("wb") as log:
            log.writelines(log_lines(str(number), args.bytes))
    return 0


def warm(args: argparse.Namespace) -> int:
    """One bot, a few requests."""
    return report(asyncio.run(scan(args.url, "warm-up", 1, 4)))


def day(args: argparse.Namespace) -> int:
    """All bots at once, each one request after another."""
    return report(asyncio.run(scan(args.url, f"day {args.number}", args.bots, args.hits)))


async def scan(url: str, seed: str, bots: int, count: int) -> Outcome:
    """What the bots saw."""
    outcome = Outcome()

    async def bot(session: aiohttp.ClientSession, number: int) -> None:
        rng = random.Random(f"{seed}/{number}")
        for hit in hits(rng, count):
            try:
                outcome.latencies_ms.append(await ask(session, hit))
            except (aiohttp.ClientError, OSError, NotAsExpected) as error:
                outcome.errors.append(f"{hit.path}: {type(error).__name__}: {error}")

    start = time.perf_counter()
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=300)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(url, timeout=timeout, connector=connector) as session:
        await asyncio.gather(*(bot(session, number) for number in range(bots)))
    outcome.seconds = time.perf_counter() - start
    return outcome


async def ask(session: aiohttp.ClientSession, hit: Hit) -> float:
    """One request, its answer checked; milliseconds."""
    start = time.perf_counter()
    async with session.get(hit.path, headers=hit.headers) as response:
        body = await response.read()
    if hit.path != FRONT_PAGE:
        if response.status != 404:
            raise NotAsExpected(f"status {response.status}")
    else:
        found = FIGURE.search(body)
        if response.status != 200 or found is None or int(found[1]) == 0:
            raise NotAsExpected(f"status {response.status}, no figures")
    return (time.perf_counter() - start) * 1000


def parser() -> argparse.ArgumentParser:
    """The options."""
    top = argparse.ArgumentParser(prog="load", description=__doc__)
    verbs = top.add_subparsers(required=True)

    verb = verbs.add_parser("fill", help="write the log that the service finds")
    verb.add_argument("--log", type=Path, required=True)
    verb.add_argument("--files", type=int, default=6)
    verb.add_argument("--bytes", type=int, default=1_000_000, help="in each")
    verb.set_defaults(run=fill)

    verb = verbs.add_parser("warm", help="a few requests")
    verb.add_argument("--url", required=True, help="where the service listens")
    verb.set_defaults(run=warm)

    verb = verbs.add_parser("day", help="all bots, each one request after another")
    verb.add_argument("--url", required=True, help="where the service listens")
    verb.add_argument("--number", type=int, default=1, help="of the day")
    verb.add_argument("--bots", type=int, default=128)
    verb.add_argument("--hits", type=int, default=40, help="of each bot, one the front page")
    verb.set_defaults(run=day)
    return top


def main() -> int:
    """Runs one verb."""
    args = parser().parse_args()
    run: Callable[[argparse.Namespace], int] = args.run
    return run(args)


if __name__ == "__main__":
    sys.exit(main())
