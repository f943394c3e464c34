"""Runs and their events in Redis.

A run is a hash `run:ID` and a stream `run:ID:events`; workers append to the stream, this service
only reads it. Descriptions of runs are kept in a small cache, as every request asks for one.
"""

from collections import OrderedDict
from collections.abc import AsyncIterator
from datetime import UTC, datetime
import json
from typing import cast

from redis.asyncio import BlockingConnectionPool, Redis

from .events import Event, NewRun, Run, RunState, decode
from .settings import Settings

Entries = list[tuple[bytes, dict[bytes, bytes]]]
"""Entries of a stream, oldest first, as Redis answers them."""


class RunStore:
    """All access to Redis; one instance a process."""

    def __init__(self, settings: Settings) -> None:
        pool = BlockingConnectionPool.from_url(
            str(settings.redis_url), max_connections=settings.redis_connections, socket_timeout=settings.redis_timeout_s
        )
        self._redis = Redis(connection_pool=pool)
        self._cache: OrderedDict[str, Run] = OrderedDict()
        self._cache_size = settings.run_cache_size
        self._tail_block_ms = settings.tail_block_ms
        self._page_events = settings.page_events

    async def close(self) -> None:
        await self._redis.aclose()
        await self._redis.connection_pool.disconnect()

    async def ping(self) -> None:
        """Raises if Redis does not answer."""
        await self._redis.ping()

    async def add_run(self, new: NewRun) -> Run:
        """Registers a run; one of the same name is replaced."""
        run = Run(**new.model_dump(), state=RunState.RUNNING, created_at=datetime.now(UTC))
        await self._redis.hset(
            f"run:{run.run_id}",
            mapping={
                "title": run.title,
                "owner": run.owner,
                "labels": json.dumps(run.labels),
                "state": run.state.value,
                "created_at": run.created_at.isoformat(),
            },
        )
        self._cache.pop(run.run_id, None)
        return run

    async def run(self, run_id: str) -> Run | None:
        """The description of a run; a completed one no longer changes and comes from the cache."""
        if cached := self._cache.get(run_id):
            self._cache.move_to_end(run_id)
            return cached
        # redis-py types answers for all its modes at once; without decoding they are bytes.
        fields = cast("dict[bytes, bytes]", await self._redis.hgetall(f"run:{run_id}"))
        if not fields:
            return None
        run = Run(
            run_id=run_id,
            title=fields[b"title"].decode(),
            owner=fields[b"owner"].decode(),
            labels=json.loads(fields[b"labels"]),
            state=RunState(fields[b"state"].decode()),
            created_at=datetime.fromisoformat(fields[b"created_at"].decode()),
        )
        if run.state is RunState.COMPLETED:
            self._cache[run_id] = run
            if len(self._cache) > self._cache_size:
                self._cache.popitem(last=False)
        return run

    async def history(self, run_id: str) -> AsyncIterator[list[Event]]:
        """Every event of a run so far, in pages.

        Without a size of pages there is one. That is the read that the case is about: one XRANGE
        over the whole stream, and every entry decoded, before the first is sent.
        """
        start, count = "-", self._page_events or None
        while True:
            answer = await self._redis.xrange(f"run:{run_id}:events", start, "+", count)
            page = [decode(stream_id, fields) for stream_id, fields in cast("Entries", answer)]
            del answer
            if page:
                yield page
                start = f"({page[-1].stream_id}"
            if count is None or len(page) < count:
                return

    async def follow(self, run_id: str, after: str) -> AsyncIterator[Event | None]:
        """Events as they are written; None where none came for a while."""
        key = f"run:{run_id}:events"
        while True:
            answer = await self._redis.xread({key: after}, block=self._tail_block_ms)
            if not answer:
                yield None
                continue
            (_, entries), *_ = cast("list[tuple[bytes, Entries]]", answer)
            for stream_id, fields in entries:
                event = decode(stream_id, fields)
                after = event.stream_id
                yield event
