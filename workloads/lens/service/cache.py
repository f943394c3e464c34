"""Computed results, each for a while, and at most so many: the least recently used goes first."""

from collections import OrderedDict
from collections.abc import Callable
import time

import pyarrow as pa

from .features import FeatureQuery


class ResultCache:
    """Tables by the query that they answer. Used by the event loop's thread only."""

    def __init__(self, entries: int, ttl_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._entries = entries
        self._ttl_s = ttl_s
        self._clock = clock
        self._tables: OrderedDict[FeatureQuery, tuple[float, pa.Table, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._tables)

    def get(self, query: FeatureQuery) -> tuple[pa.Table, int] | None:
        """The table, and how many events it was made from; None where none holds any more."""
        found = self._tables.get(query)
        if found is None:
            return None
        until, table, events = found
        if self._clock() >= until:
            del self._tables[query]
            return None
        self._tables.move_to_end(query)
        return table, events

    def put(self, query: FeatureQuery, table: pa.Table, events: int) -> None:
        """Keeps a table from now on."""
        self._tables[query] = (self._clock() + self._ttl_s, table, events)
        self._tables.move_to_end(query)
        if len(self._tables) > self._entries:
            self._tables.popitem(last=False)

    def sweep(self) -> int:
        """Drops what no longer holds; how many that were."""
        now = self._clock()
        old = [query for query, (until, _, _) in self._tables.items() if now >= until]
        for query in old:
            del self._tables[query]
        return len(old)
