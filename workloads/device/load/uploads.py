"""Clients that upload one batch after another, each on a connection of its own."""

import asyncio
import itertools
import json
import time

import aiohttp

from answers.summary import Outcome


class WrongAnswerError(Exception):
    """An answer that does not fit what was uploaded."""


async def upload(session: aiohttp.ClientSession, device: str, body: bytes) -> None:
    """One upload; raises where the answer does not fit."""
    async with session.post(f"/v1/devices/{device}/readings", data=body) as response:
        answer = await response.read()
        if response.status != 201:
            raise WrongAnswerError(f"{device}: status {response.status}: {answer[:200]!r}")
    told = json.loads(answer)
    if told["device"] != device or not told["sensors"]:
        raise WrongAnswerError(f"{device}: {answer[:200]!r}")


async def uploads(url: str, bodies: list[bytes], clients: int, count: int) -> Outcome:
    """So many uploads in all, by clients at once; the bodies in turn."""
    outcome = Outcome()
    numbers = iter(range(count))
    turns = itertools.cycle(bodies)

    async def client() -> None:
        timeout = aiohttp.ClientTimeout(total=600, sock_connect=60)
        # A connection each time, as devices have it: any worker may take the next.
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(url, timeout=timeout, connector=connector) as session:
            for number in numbers:
                start = time.perf_counter()
                try:
                    await upload(session, f"device-{number % 200}", next(turns))
                    outcome.latencies_ms.append((time.perf_counter() - start) * 1000)
                except (aiohttp.ClientError, WrongAnswerError, TimeoutError) as error:
                    outcome.errors.append(f"{type(error).__name__}: {error}")

    start = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    outcome.seconds = time.perf_counter() - start
    return outcome
