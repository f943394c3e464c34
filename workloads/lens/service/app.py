"""The HTTP interface: features, health, metrics, diagnosis.

`app` is what uvicorn loads; one worker, one event loop, threads for what blocks.
"""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
import logging
import os
import time

from fastapi import FastAPI, HTTPException, Response, status
from prometheus_client import CONTENT_TYPE_LATEST, Counter, Gauge, Histogram, generate_latest
import pyarrow as pa

from answers import routes

from .cache import ResultCache
from .connector import Connector, WarehouseError
from .features import FeatureQuery, Features, compute
from .settings import Settings

log = logging.getLogger("uvicorn.error").getChild("lens")

QUERIES = Counter("lens_queries_total", "Queries", ["source"])
CACHED = Gauge("lens_cached_results", "Results in the cache")
WAREHOUSE_SECONDS = Histogram("lens_warehouse_seconds", "Time to fetch and decode a result")
COMPUTE_SECONDS = Histogram("lens_compute_seconds", "Time to compute the features of a query")

SWEEP_S = 5.0


class FeatureStore:
    """What a process has: the connector, the customers, the cache and the query threads."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.connector = Connector(settings)
        self.cache = ResultCache(settings.cache_entries, settings.cache_ttl_s)
        self._threads = ThreadPoolExecutor(settings.query_threads, "query")
        self._customers: pa.Table | None = None

    async def query(self, query: FeatureQuery) -> Features:
        """Answers from the cache, or from the warehouse."""
        found = self.cache.get(query)
        QUERIES.labels("cache" if found else "warehouse").inc()
        if found is None:
            table, events = await self._compute(query)
            self.cache.put(query, table, events)
            CACHED.set(len(self.cache))
        else:
            table, events = found
        return Features(
            rows=table.slice(0, self.settings.answer_rows).to_pylist(),
            total_rows=table.num_rows,
            events=events,
            cached=found is not None,
        )

    async def _compute(self, query: FeatureQuery) -> tuple[pa.Table, int]:
        if self._customers is None:
            self._customers = await self.connector.customers()
        start = time.perf_counter()
        events = await self.connector.events(query.dataset, query.days)
        fetched = time.perf_counter()
        table = await asyncio.get_running_loop().run_in_executor(self._threads, compute, events, self._customers, query)
        WAREHOUSE_SECONDS.observe(fetched - start)
        COMPUTE_SECONDS.observe(time.perf_counter() - fetched)
        return table, sum(chunk.num_rows for chunk in events)

    async def sweep(self) -> None:
        """Drops results that no longer hold, for as long as the service runs."""
        while True:
            await asyncio.sleep(SWEEP_S)
            self.cache.sweep()
            CACHED.set(len(self.cache))

    def close(self) -> None:
        self.connector.close()
        self._threads.shutdown(cancel_futures=True)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Opens the store for as long as the service runs."""
    app.state.store = store = FeatureStore(Settings.from_environment(os.environ))
    log.info("Arrow's memory comes from the %s pool", pa.default_memory_pool().backend_name)
    sweeping = asyncio.create_task(store.sweep())
    yield
    sweeping.cancel()
    with suppress(asyncio.CancelledError):
        await sweeping
    store.close()


app = FastAPI(title="Feature store", lifespan=lifespan)
app.include_router(routes.router)


@app.get("/health")
async def health() -> dict[str, str]:
    """Answers 200 while the warehouse can be reached."""
    try:
        await app.state.store.connector.ping()
    except WarehouseError as error:
        raise HTTPException(status.HTTP_503_SERVICE_UNAVAILABLE, "warehouse unreachable") from error
    return {"status": "ok"}


@app.get("/metrics")
async def metrics() -> Response:
    """The counters in Prometheus' text format."""
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)


@app.post("/v1/features")
async def features(query: FeatureQuery) -> Features:
    """The features of a customer group."""
    store: FeatureStore = app.state.store
    try:
        return await store.query(query)
    except WarehouseError as error:
        raise HTTPException(status.HTTP_502_BAD_GATEWAY, str(error)) from error
