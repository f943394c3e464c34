"""The command line of the load: fill, then warm and burst as often as the trial asks.

The last line on stdout is the summary that `ebb compare` reads (docs/workload.md).
"""

import argparse
import asyncio
from collections.abc import Callable, Coroutine
import sys

import aiohttp
from redis.asyncio import Redis

from answers.summary import report

from .payloads import events
from .subscribers import burst

WARM_RUN = "warm"
WARM_EVENTS = 20


async def fill(args: argparse.Namespace) -> int:
    """Registers the runs with the service and writes their events, as workers do."""
    redis = Redis.from_url(args.redis)
    async with redis, aiohttp.ClientSession(args.url) as session:
        await fill_run(session, redis, WARM_RUN, WARM_EVENTS, args.bytes)
        for run_id in run_ids(args.streams):
            await fill_run(session, redis, run_id, args.events, args.bytes)
    return 0


async def fill_run(session: aiohttp.ClientSession, redis: Redis, run_id: str, count: int, size_bytes: int) -> None:
    """One run, from its registration to its completion."""
    new = {"run_id": run_id, "title": f"Run {run_id}", "owner": "load", "labels": {"case": "sse"}}
    async with session.post("/v1/runs", json=new) as response:
        response.raise_for_status()
    batch = redis.pipeline(transaction=False)
    for kind, data in events(run_id, count, size_bytes):
        batch.xadd(f"run:{run_id}:events", {"type": kind, "data": data})
        if len(batch) >= 100:
            await batch.execute()
    await batch.execute()
    await redis.hset(f"run:{run_id}", "state", "completed")


async def warm(args: argparse.Namespace) -> int:
    """One subscriber on a short run: what is loaded lazily is loaded after it."""
    return report(await burst(args.url, [WARM_RUN], 1, WARM_EVENTS))


async def subscribe(args: argparse.Namespace) -> int:
    """One burst."""
    return report(await burst(args.url, run_ids(args.streams), args.subscribers, args.events))


def run_ids(streams: int) -> list[str]:
    """The names of the filled runs."""
    return [f"run-{number}" for number in range(1, streams + 1)]


def parser() -> argparse.ArgumentParser:
    """The options."""
    top = argparse.ArgumentParser(prog="load", description=__doc__)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--url", required=True, help="where the service listens")
    shared.add_argument("--streams", type=int, default=3)
    shared.add_argument("--events", type=int, default=2500, help="events in a stream")
    verbs = top.add_subparsers(required=True)

    verb = verbs.add_parser("fill", parents=[shared], help="write the streams")
    verb.add_argument("--redis", required=True, help="redis://HOST:PORT/DB")
    verb.add_argument("--bytes", type=int, default=30_000, help="size of an event")
    verb.set_defaults(run=fill)

    verb = verbs.add_parser("warm", parents=[shared], help="one short stream")
    verb.set_defaults(run=warm)

    verb = verbs.add_parser("burst", parents=[shared], help="all streams at once")
    verb.add_argument("--subscribers", type=int, default=6, help="of a stream, one after another")
    verb.set_defaults(run=subscribe)
    return top


def main() -> int:
    """Runs one verb."""
    args = parser().parse_args()
    verb: Callable[[argparse.Namespace], Coroutine[None, None, int]] = args.run
    return asyncio.run(verb(args))


if __name__ == "__main__":
    sys.exit(main())
