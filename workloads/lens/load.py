"""The load: what service backends ask of the feature store, at a rate.

Some queries are asked often, most of them seldom; the same for the same seed. They are sent when they are due,
whether or not earlier ones are answered: arrivals are a Poisson process. At most `limit` are in flight, as a
backend's pool of connections has it; what is due beyond that waits here, and its waiting counts. The last line on
stdout is the summary that `ebb compare` reads (docs/workload.md).
"""

import argparse
import asyncio
from collections.abc import Iterator
import random
import sys
import time
from typing import Any

import aiohttp

from answers.clients import WrongAnswer, count
from answers.summary import Outcome, report

GROUPS = (["region", "kind"], ["segment", "channel"], ["region", "segment"], ["kind"])
KINDS = ("order", "return", "refund", "call", "visit", "review")

DATASETS = 800
"""More than the cache holds, so that most queries reach the warehouse."""


def queries(seed: int) -> Iterator[dict[str, Any]]:
    rng = random.Random(seed)
    while True:
        # Popularity falls with the number, as 1/n.
        dataset = min(DATASETS - 1, int(DATASETS ** rng.random()) - 1 + rng.randrange(8))
        # What is asked of a data set is its own, so that a popular one is answered from the cache.
        shape = random.Random(dataset)
        yield {
            "dataset": dataset,
            "days": shape.randint(2, 8),
            "min_amount": float(shape.choice([0, 5, 50, 250])),
            "kinds": shape.sample(KINDS, k=shape.randint(0, 4)),
            "group_by": shape.choice(GROUPS),
        }


async def ask(session: aiohttp.ClientSession, query: dict[str, Any]) -> None:
    """One query; raises where the answer is not whole."""
    async with session.post("/v1/features", json=query) as response:
        response.raise_for_status()
        answer = await response.json()
    if not answer["rows"] or answer["events"] <= 0 or answer["total_rows"] < len(answer["rows"]):
        raise WrongAnswer(f"data set {query['dataset']}: no features")


async def traffic(
    url: str, queries: Iterator[dict[str, Any]], rate: float, seconds: float, limit: int, seed: int
) -> Outcome:
    """Queries at a rate for some seconds; done when the last is answered."""
    outcome, rng = Outcome(), random.Random(seed)
    timeout = aiohttp.ClientTimeout(total=600, sock_connect=60)
    connector = aiohttp.TCPConnector(limit=limit)
    start = due = time.perf_counter()
    async with (
        aiohttp.ClientSession(url, timeout=timeout, connector=connector) as session,
        asyncio.TaskGroup() as group,
    ):
        while (due := due + rng.expovariate(rate)) < start + seconds:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            group.create_task(count(outcome, ask(session, next(queries)), due))
    outcome.seconds = time.perf_counter() - start
    return outcome


def main() -> int:
    """Runs it; 1 where a query failed."""
    parser = argparse.ArgumentParser(prog="load", description=__doc__)
    parser.add_argument("--url", required=True, help="where the service listens")
    parser.add_argument("--rate", type=float, default=5.0, help="queries a second")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--limit", type=int, default=48, help="queries in flight")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    asked = queries(args.seed)
    outcome = asyncio.run(traffic(args.url, asked, args.rate, args.seconds, args.limit, args.seed))
    return report(outcome)


if __name__ == "__main__":
    sys.exit(main())
