"""What is computed and what is kept, without a network. Run: .venv/bin/python -m unittest"""

import unittest

import pyarrow as pa
from service.cache import ResultCache
from service.features import compute
from service.queries import FeatureQuery

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


if __name__ == "__main__":
    unittest.main()
