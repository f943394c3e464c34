"""The load: fill, as workers write, then warm and burst, as subscribers read, as often as the trial asks.

The last line on stdout is the summary that `ebb compare` reads (docs/workload.md).
"""

import argparse
import asyncio
from collections.abc import Callable, Coroutine, Iterator
import functools
import json
import random
import sys

import aiohttp
from redis.asyncio import Redis

from answers.clients import WrongAnswer, count, together
from answers.summary import Outcome, report

WARM_RUN = "warm"
WARM_EVENTS = 20
WORDS = (
    "stream subscriber replay cursor page arena buffer token result summary source figure "
    "table query window answer plan step tool call reading writing waiting checking"
).split()


def events(run_id: str, count: int, size_bytes: int) -> Iterator[tuple[str, bytes]]:
    """Kind and JSON text of each event; the last one completes the run."""
    rng = random.Random(run_id)
    # Words are drawn once: drawing 225 MB of them anew would take longer than the trial's phases.
    text = " ".join(rng.choices(WORDS, k=size_bytes // 2))
    for number in range(count - 1):
        yield "tool.result", event(run_id, number, text, size_bytes, rng)
    yield "run.completed", json.dumps({"seq": count - 1, "run_id": run_id}).encode()


def event(run_id: str, number: int, text: str, size_bytes: int, rng: random.Random) -> bytes:
    """One event: a description of about 300 bytes and a text that fills it up to its size."""
    body = {
        "seq": number,
        "run_id": run_id,
        "actor": {"kind": "agent", "name": rng.choice(WORDS), "attempt": rng.randint(1, 3)},
        "usage": {"input_tokens": rng.randint(100, 9999), "output_tokens": rng.randint(10, 999)},
        "tags": rng.sample(WORDS, k=4),
        "content": "",
    }
    room = max(0, size_bytes - len(json.dumps(body)))
    start = rng.randrange(max(1, len(text) - room))
    body["content"] = text[start : start + room]
    return json.dumps(body).encode()


async def subscribe(session: aiohttp.ClientSession, run_id: str, expected: int) -> None:
    """Reads one stream to its end; raises where it ends early, or its last event does not complete the run."""
    frames = 0
    tail = b""
    async with session.get(f"/v1/runs/{run_id}/events") as response:
        response.raise_for_status()
        async for chunk in response.content.iter_any():
            # An empty line ends a frame; JSON text never contains a bare newline.
            seam = tail[-1:] + chunk[:1]
            frames += chunk.count(b"\n\n") + (seam == b"\n\n")
            tail = (tail + chunk)[-256:] if len(chunk) < 256 else chunk[-256:]
    if frames != expected or b"event: run.completed" not in tail:
        raise WrongAnswer(f"{run_id}: {frames} of {expected} events")


async def burst(url: str, runs: list[str], subscribers: int, expected: int) -> Outcome:
    """All runs at once; the subscribers of a run one after another, each a client of its own."""
    outcome = Outcome()

    async def one_run(session: aiohttp.ClientSession, run_id: str) -> None:
        for _ in range(subscribers):
            await count(outcome, subscribe(session, run_id, expected))

    clients = [functools.partial(one_run, run_id=run_id) for run_id in runs]
    return await together(url, outcome, clients, one_connection_each=True)


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


async def burst_of(args: argparse.Namespace) -> int:
    return report(await burst(args.url, run_ids(args.streams), args.subscribers, args.events))


def run_ids(streams: int) -> list[str]:
    """The names of the filled runs."""
    return [f"run-{number}" for number in range(1, streams + 1)]


def parser() -> argparse.ArgumentParser:
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
    verb.set_defaults(run=burst_of)
    return top


def main() -> int:
    args = parser().parse_args()
    verb: Callable[[argparse.Namespace], Coroutine[None, None, int]] = args.run
    return asyncio.run(verb(args))


if __name__ == "__main__":
    sys.exit(main())
