"""The HTTP interface: runs, their events as Server-Sent Events, health, metrics, diagnosis.

`app` is what uvicorn loads; one worker, one event loop.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
import logging
import os
import time
from typing import Annotated

from fastapi import Depends, FastAPI, Header, HTTPException, Request, Response, status
from fastapi.responses import StreamingResponse
from prometheus_client import CONTENT_TYPE_LATEST, Counter, Gauge, Histogram, generate_latest
from redis.exceptions import RedisError

from answers import routes

from .events import COMPLETED, NewRun, Run, RunId, StreamId, encode
from .settings import Settings
from .store import RunStore

log = logging.getLogger("uvicorn.error").getChild("sse")

SUBSCRIBERS = Gauge("sse_subscribers", "Open event streams")
EVENTS_SENT = Counter("sse_events_sent_total", "Events sent", ["kind"])
REPLAY_SECONDS = Histogram("sse_replay_seconds", "Time to read and decode a page of history")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Opens the store for as long as the service runs."""
    app.state.store = RunStore(Settings.from_environment(os.environ))
    yield
    await app.state.store.close()


app = FastAPI(title="Run events", lifespan=lifespan)
app.include_router(routes.router)


def run_store(request: Request) -> RunStore:
    store: RunStore = request.app.state.store
    return store


Store = Annotated[RunStore, Depends(run_store)]


@app.get("/health")
async def health(store: Store) -> dict[str, str]:
    """Answers 200 while Redis can be reached."""
    try:
        await store.ping()
    except RedisError as error:
        raise HTTPException(status.HTTP_503_SERVICE_UNAVAILABLE, "redis unreachable") from error
    return {"status": "ok"}


@app.get("/metrics")
async def metrics() -> Response:
    """The counters in Prometheus' text format."""
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)


@app.post("/v1/runs", status_code=status.HTTP_201_CREATED)
async def add_run(new: NewRun, store: Store) -> Run:
    return await store.add_run(new)


@app.get("/v1/runs/{run_id}")
async def get_run(run_id: RunId, store: Store) -> Run:
    run = await store.run(run_id)
    if run is None:
        raise HTTPException(status.HTTP_404_NOT_FOUND, "no such run")
    return run


@app.get("/v1/runs/{run_id}/events")
async def subscribe(
    run: Annotated[Run, Depends(get_run)], store: Store, last_event_id: Annotated[StreamId | None, Header()] = None
) -> StreamingResponse:
    """Replays a run's events and follows it until it is completed."""
    return StreamingResponse(
        frames(store, run.run_id, last_event_id),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def frames(store: RunStore, run_id: str, last_event_id: str | None) -> AsyncIterator[str]:
    sent = 0
    with SUBSCRIBERS.track_inprogress():
        start = time.perf_counter()
        position, last_kind = "0", None
        skip = parse_id(last_event_id) if last_event_id else (0, 0)
        async for page in store.history(run_id):
            REPLAY_SECONDS.observe(time.perf_counter() - start)
            position, last_kind = page[-1].stream_id, page[-1].kind
            for event in page:
                if parse_id(event.stream_id) <= skip:
                    continue
                EVENTS_SENT.labels(event.kind).inc()
                sent += 1
                yield encode(event)
            start = time.perf_counter()
        if last_kind == COMPLETED:
            log.info("run %s: replayed %d events, completed", run_id, sent)
            return
        async for tail in store.follow(run_id, position):
            if tail is None:
                yield ": keep-alive\n\n"
                continue
            EVENTS_SENT.labels(tail.kind).inc()
            yield encode(tail)
            if tail.kind == COMPLETED:
                return


def parse_id(stream_id: str) -> tuple[int, int]:
    """Redis orders entries by these two numbers, not by the text."""
    milliseconds, _, sequence = stream_id.partition("-")
    return int(milliseconds), int(sequence or 0)
