"""The service as its clients see it, with its warehouse. Run: .venv/bin/python -m unittest"""

import asyncio
import contextlib
import os
from pathlib import Path
import subprocess
import sys
from typing import Any
import unittest

import aiohttp
from load.queries import queries
from load.traffic import traffic

from answers.tried import free_port

CASE = Path(__file__).parent.parent


class ServiceTest(unittest.IsolatedAsyncioTestCase):
    """One warehouse and one service a test."""

    async def asyncSetUp(self) -> None:
        # unittest switches asyncio's debugging on, which reports every slow step.
        asyncio.get_running_loop().set_debug(False)
        self.stack = contextlib.AsyncExitStack()
        self.addAsyncCleanup(self.stack.aclose)
        warehouse, port = free_port(), free_port()
        self.warehouse = self.start("-m", "warehouse", "--port", str(warehouse), "--chunks", "8")
        self.url = f"http://127.0.0.1:{port}"
        uvicorn = ["-m", "uvicorn", "service.app:app", "--log-level", "critical"]
        self.start(
            *uvicorn,
            "--port",
            str(port),
            LENS_WAREHOUSE_URL=f"http://127.0.0.1:{warehouse}",
            ARROW_DEFAULT_MEMORY_POOL="system",
        )
        self.http = await self.stack.enter_async_context(aiohttp.ClientSession(self.url))
        async with asyncio.timeout(120):
            while not await self.ready():  # noqa: ASYNC110, it asks another process
                await asyncio.sleep(0.05)

    def start(self, *arguments: str, **env: str) -> subprocess.Popen[bytes]:
        """Starts a Python that ends with the test."""
        process = subprocess.Popen(
            [sys.executable, *arguments], cwd=CASE, env={**os.environ, **env}, stdout=subprocess.DEVNULL
        )

        def stop() -> None:
            process.terminate()
            process.wait(timeout=60)

        self.stack.callback(stop)
        return process

    async def ready(self) -> bool:
        try:
            async with self.http.get("/health") as response:
                return response.status == 200
        except aiohttp.ClientConnectionError:
            return False

    async def ask(self, **query: Any) -> tuple[int, dict[str, Any]]:  # noqa: ANN401, JSON
        """Status and answer of a query."""
        async with self.http.post("/v1/features", json=query) as response:
            return response.status, await response.json()

    def end_warehouse(self) -> None:
        self.warehouse.kill()
        self.warehouse.wait()

    async def test_a_query_is_answered_and_then_comes_from_the_cache(self) -> None:
        status, first = await self.ask(dataset=3, days=4, group_by=["region"])
        self.assertEqual((status, first["cached"], len(first["rows"])), (200, False, 200))
        self.assertGreaterEqual(first["events"], 4 * 2000)
        self.assertGreater(first["total_rows"], 200)
        _, again = await self.ask(dataset=3, days=4, group_by=["region"])
        self.assertEqual(again, first | {"cached": True})

    async def test_requests_are_validated(self) -> None:
        for query in (
            {"dataset": 3},
            {"dataset": 3, "days": 99},
            {"dataset": 3, "days": 1, "group_by": ["note"]},
            {"dataset": 3, "days": 1, "unknown": 1},
        ):
            status, _ = await self.ask(**query)
            self.assertEqual(status, 422, query)

    async def test_a_warehouse_that_is_gone_is_told(self) -> None:
        self.end_warehouse()
        status, answer = await self.ask(dataset=5, days=1)
        self.assertEqual(status, 502, answer)
        async with self.http.get("/health") as response:
            self.assertEqual(response.status, 503)

    async def test_the_load_checks_its_answers(self) -> None:
        outcome = await traffic(self.url, queries(1), 20.0, 1.0, 4, 1)
        self.assertEqual(outcome.errors, [])
        self.assertGreater(len(outcome.latencies_ms), 5)
        self.end_warehouse()
        outcome = await traffic(self.url, queries(77), 20.0, 1.0, 4, 2)
        self.assertTrue(outcome.errors)

    async def test_memory_is_told_and_collected(self) -> None:
        async with self.http.get("/debug/live") as response:
            live = await response.json()
        self.assertGreater(live["live_bytes"], 10_000_000)
        async with self.http.post("/debug/gc") as response:
            self.assertGreaterEqual((await response.json())["unreachable"], 0)


if __name__ == "__main__":
    unittest.main()
