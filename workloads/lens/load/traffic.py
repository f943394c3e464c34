"""Queries at a rate: they are sent when they are due, whether or not earlier ones are answered.

Arrivals are a Poisson process. At most `limit` are in flight, as a backend's pool of connections
has it; what is due beyond that waits here, and its waiting counts.
"""

import asyncio
from collections.abc import Iterator
import random
import time
from typing import Any

import aiohttp

from answers.summary import Outcome


class WrongAnswerError(Exception):
    """An answer that is not whole."""


async def ask(session: aiohttp.ClientSession, query: dict[str, Any]) -> None:
    """One query; raises where the answer is not whole."""
    async with session.post("/v1/features", json=query) as response:
        response.raise_for_status()
        answer = await response.json()
    if not answer["rows"] or answer["events"] <= 0 or answer["total_rows"] < len(answer["rows"]):
        raise WrongAnswerError(f"data set {query['dataset']}: no features")


async def traffic(
    url: str, queries: Iterator[dict[str, Any]], rate: float, seconds: float, limit: int, seed: int
) -> Outcome:
    """Queries at a rate for some seconds; done when the last is answered."""
    outcome = Outcome(latencies_ms=[], errors=[], seconds=0.0)
    rng = random.Random(seed)
    timeout = aiohttp.ClientTimeout(total=600, sock_connect=60)

    async def one(session: aiohttp.ClientSession, query: dict[str, Any], due: float) -> None:
        try:
            await ask(session, query)
            outcome.latencies_ms.append((time.perf_counter() - due) * 1000)
        except (aiohttp.ClientError, WrongAnswerError, TimeoutError) as error:
            outcome.errors.append(f"{type(error).__name__}: {error}")

    start = time.perf_counter()
    connector = aiohttp.TCPConnector(limit=limit)
    async with (
        aiohttp.ClientSession(url, timeout=timeout, connector=connector) as session,
        asyncio.TaskGroup() as group,
    ):
        due = start
        while (due := due + rng.expovariate(rate)) < start + seconds:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            group.create_task(one(session, next(queries), due))
    outcome.seconds = time.perf_counter() - start
    return outcome
