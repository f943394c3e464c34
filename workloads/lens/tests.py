"""What is computed and what is kept, and the service as its clients see it, with its warehouse.

Run: .venv/bin/python -m unittest
"""

import asyncio
import contextlib
from pathlib import Path
from typing import Any
import unittest

import aiohttp
from load import queries, traffic
import pyarrow as pa
from service.cache import ResultCache
from service.features import FeatureQuery, compute

from answers.tried import start_python

CASE = Path(__file__).parent
CUSTOMERS = pa.table({"customer": pa.array([1, 2], pa.int32()), "region": ["north", "south"], "segment": ["new"] * 2})


def events(*rows: tuple[int, str, float | None, bool | None]) -> pa.Table:
    """Events of customer, kind, amount and consent."""
    customer, kind, amount, consent = zip(*rows, strict=True)
    return pa.table(
        {
            "customer": pa.array(customer, pa.int32()),
            "at": pa.array(range(len(rows)), pa.timestamp("ms")),
            "kind": pa.array(kind, pa.string()),
            "channel": ["web"] * len(rows),
            "amount": pa.array(amount, pa.float64()),
            "note": pa.array([None] * len(rows), pa.string()),
            "consent": pa.array(consent, pa.bool_()),
        }
    )


class FeaturesTest(unittest.TestCase):
    def test_events_are_filtered_joined_grouped_and_sorted(self) -> None:
        first = events((1, "order", 10.0, True), (2, "order", 99.0, True), (3, "order", 5.0, True))
        second = events((1, "order", 7.0, True), (1, "visit", 3.0, False), (1, "call", None, True))
        table = compute([first, second], CUSTOMERS, FeatureQuery(dataset=1, days=1))
        rows = table.select(["customer", "region", "kind", "amount_sum", "amount_count"])
        self.assertEqual(
            [tuple(row.values()) for row in rows.to_pylist()],
            [(2, "south", "order", 99.0, 1), (1, "north", "order", 17.0, 2)],
        )

    def test_kinds_and_amounts_choose(self) -> None:
        table = events((1, "order", 10.0, True), (1, "visit", 20.0, True), (2, "order", 1.0, True))
        query = FeatureQuery(dataset=1, days=1, kinds=("order",), min_amount=5, group_by=("kind",))
        found = compute([table], CUSTOMERS, query).to_pylist()
        self.assertEqual([(row["customer"], row["amount_sum"]) for row in found], [(1, 10.0)])


class CacheTest(unittest.TestCase):
    def setUp(self) -> None:
        self.now = 100.0
        self.cache = ResultCache(entries=2, ttl_s=10.0, clock=lambda: self.now)
        self.queries = [FeatureQuery(dataset=number, days=1) for number in range(3)]

    def test_a_result_holds_for_its_time(self) -> None:
        self.cache.put(self.queries[0], CUSTOMERS, 7)
        self.now += 9.9
        self.assertEqual(self.cache.get(self.queries[0]), (CUSTOMERS, 7))
        self.now += 0.2
        self.assertIsNone(self.cache.get(self.queries[0]))
        self.assertEqual(len(self.cache), 0)

    def test_what_was_not_used_for_longest_goes_first(self) -> None:
        self.cache.put(self.queries[0], CUSTOMERS, 0)
        self.cache.put(self.queries[1], CUSTOMERS, 1)
        self.cache.get(self.queries[0])
        self.cache.put(self.queries[2], CUSTOMERS, 2)
        self.assertIsNone(self.cache.get(self.queries[1]))
        self.assertIsNotNone(self.cache.get(self.queries[0]))

    def test_a_sweep_drops_what_no_longer_holds(self) -> None:
        self.cache.put(self.queries[0], CUSTOMERS, 0)
        self.now += 5
        self.cache.put(self.queries[1], CUSTOMERS, 1)
        self.now += 6
        self.assertEqual((self.cache.sweep(), len(self.cache)), (1, 1))


class ServiceTest(unittest.IsolatedAsyncioTestCase):
    """One warehouse and one service a test."""

    def setUp(self) -> None:
        stack = self.enterContext(contextlib.ExitStack())
        warehouse, self.warehouse = start_python(stack, CASE, "warehouse", "--port", "{port}", "--chunks", "8")
        uvicorn = ("uvicorn", "service.app:app", "--port", "{port}")
        settings = {"LENS_WAREHOUSE_URL": warehouse, "ARROW_DEFAULT_MEMORY_POOL": "system"}
        self.url, _ = start_python(stack, CASE, *uvicorn, **settings)

    async def asyncSetUp(self) -> None:
        # unittest switches asyncio's debugging on, which reports every slow step.
        asyncio.get_running_loop().set_debug(False)
        self.http = await self.enterAsyncContext(aiohttp.ClientSession(self.url))

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
