"""Subscribers: each opens a run's event stream, reads it to its end and checks that it is whole."""

import asyncio
import time

import aiohttp

from answers.summary import Outcome


class IncompleteStream(Exception):
    """A stream that ended early, or whose last event does not complete the run."""


async def subscribe(session: aiohttp.ClientSession, run_id: str, expected: int) -> float:
    """Reads one stream to its end; milliseconds from the request to the last event."""
    start = time.perf_counter()
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
        raise IncompleteStream(f"{run_id}: {frames} of {expected} events")
    return (time.perf_counter() - start) * 1000


async def burst(url: str, runs: list[str], subscribers: int, expected: int) -> Outcome:
    """All runs at once; the subscribers of a run one after another."""
    outcome = Outcome()

    async def one_run(session: aiohttp.ClientSession, run_id: str) -> None:
        for _ in range(subscribers):
            try:
                outcome.latencies_ms.append(await subscribe(session, run_id, expected))
            except (aiohttp.ClientError, IncompleteStream, OSError) as error:
                outcome.errors.append(f"{type(error).__name__}: {error}")

    start = time.perf_counter()
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=120)
    # Every subscriber is a client of its own, hence a connection of its own.
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(url, timeout=timeout, connector=connector, read_bufsize=1 << 20) as session:
        await asyncio.gather(*(one_run(session, run_id) for run_id in runs))
    outcome.seconds = time.perf_counter() - start
    return outcome
