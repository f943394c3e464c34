"""Clients of a service in a trial: all at once, each answer checked and timed."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
import time

import aiohttp

from .summary import Outcome

Client = Callable[[aiohttp.ClientSession], Awaitable[None]]


class WrongAnswer(Exception):
    """An answer that is not the one that the service should give."""


async def count(outcome: Outcome, request: Awaitable[None], due: float | None = None) -> None:
    """Awaits a request and notes its latency, from when it was due, or its error."""
    start = time.perf_counter() if due is None else due
    try:
        await request
        outcome.latencies_ms.append((time.perf_counter() - start) * 1000)
    except (aiohttp.ClientError, OSError, KeyError, WrongAnswer) as error:
        outcome.errors.append(f"{type(error).__name__}: {error}")


async def together(url: str, outcome: Outcome, clients: Iterable[Client], one_connection_each: bool = False) -> Outcome:
    """Runs all clients at once in one session, and notes the time until the last has ended."""
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=60, sock_read=300)
    connector = aiohttp.TCPConnector(limit=0, force_close=one_connection_each)
    start = time.perf_counter()
    async with aiohttp.ClientSession(url, timeout=timeout, connector=connector, read_bufsize=1 << 20) as session:
        await asyncio.gather(*(client(session) for client in clients))
    outcome.seconds = time.perf_counter() - start
    return outcome
