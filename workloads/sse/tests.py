"""The service as its clients see it, and the stand-in for redis-server. Run: .venv/bin/python -m unittest"""

import asyncio
import contextlib
import json
from pathlib import Path
import subprocess
import sys
import tempfile
import time
from typing import Any
import unittest

import aiohttp
from load import burst, events, fill_run
import redis
from redis.asyncio import Redis

from answers.needs import needs
from answers.tried import free_port, start_python

CASE = Path(__file__).parent


@needs("redis-server")
class ServiceTest(unittest.IsolatedAsyncioTestCase):
    """One Redis and one service a test."""

    page_events = "0"

    def setUp(self) -> None:
        stack = self.enterContext(contextlib.ExitStack())
        redis_port = str(free_port())
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        command = ["redis-server", "--port", redis_port, "--save", "", "--dir", folder]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        stack.callback(server.wait, timeout=10)
        stack.callback(server.terminate)
        self.redis_url = f"redis://127.0.0.1:{redis_port}/0"
        uvicorn = ("uvicorn", "service.app:app", "--port", "{port}")
        settings = {"SSE_REDIS_URL": self.redis_url, "SSE_TAIL_BLOCK_MS": "200", "SSE_PAGE_EVENTS": self.page_events}
        self.url, _ = start_python(stack, CASE, *uvicorn, **settings)

    async def asyncSetUp(self) -> None:
        # unittest switches asyncio's debugging on, which reports every slow step.
        asyncio.get_running_loop().set_debug(False)
        self.redis = await self.enterAsyncContext(Redis.from_url(self.redis_url))
        self.http = await self.enterAsyncContext(aiohttp.ClientSession(self.url))

    async def frames(self, run_id: str, **headers: str) -> list[dict[str, str]]:
        """All frames of a subscription, as their fields; comments under the name "comment"."""
        async with self.http.get(f"/v1/runs/{run_id}/events", headers=headers) as response:
            self.assertEqual(response.status, 200)
            self.assertEqual(response.content_type, "text/event-stream")
            text = await response.text()
        lines = [frame.split("\n") for frame in text.removesuffix("\n\n").split("\n\n")]
        pairs = [[line.partition(": ") for line in frame] for frame in lines]
        return [{name or "comment": value for name, _, value in frame} for frame in pairs]

    async def test_a_completed_run_is_replayed_whole(self) -> None:
        await fill_run(self.http, self.redis, "r1", 50, 5000)
        frames = await self.frames("r1")
        sent = [json.loads(data) for _, data in events("r1", 50, 5000)]
        self.assertEqual([json.loads(frame["data"]) for frame in frames], sent)
        self.assertEqual(frames[-1]["event"], "run.completed")

    async def test_a_client_that_comes_back_gets_the_rest(self) -> None:
        await fill_run(self.http, self.redis, "r1", 10, 500)
        frames = await self.frames("r1")
        rest = await self.frames("r1", **{"Last-Event-ID": frames[6]["id"]})
        self.assertEqual(rest, frames[7:])

    async def test_a_running_run_is_followed_until_it_completes(self) -> None:
        new = {"run_id": "r2", "title": "t", "owner": "o"}
        async with self.http.post("/v1/runs", json=new) as response:
            self.assertEqual(response.status, 201)
        await self.redis.xadd("run:r2:events", {"type": "step", "data": '{"seq":0}'})
        reading = asyncio.create_task(self.frames("r2"))
        # Longer than SSE_TAIL_BLOCK_MS: at least one keep-alive comes between.
        await asyncio.sleep(0.7)
        await self.redis.xadd("run:r2:events", {"type": "run.completed", "data": '{"seq":1}'})
        async with asyncio.timeout(10):
            frames = await reading
        self.assertEqual([frame["data"] for frame in frames if "data" in frame], ['{"seq":0}', '{"seq":1}'])
        self.assertIn({"comment": "keep-alive"}, frames)

    async def test_requests_are_validated(self) -> None:
        for path, expected in {"/v1/runs/none/events": 404, "/v1/runs/UPPER/events": 422, "/v1/runs/none": 404}.items():
            async with self.http.get(path) as response:
                self.assertEqual(response.status, expected, path)
        new = {"run_id": "r3", "title": "t", "owner": "o", "unknown": 1}
        async with self.http.post("/v1/runs", json=new) as response:
            self.assertEqual(response.status, 422)

    async def test_the_load_reports_a_stream_that_is_not_whole(self) -> None:
        await fill_run(self.http, self.redis, "r1", 20, 500)
        whole = await burst(self.url, ["r1"], 2, 20)
        self.assertEqual((len(whole.latencies_ms), whole.errors), (2, []))
        short = await burst(self.url, ["r1"], 2, 21)
        self.assertEqual((len(short.latencies_ms), len(short.errors)), (0, 2))

    async def test_memory_is_told(self) -> None:
        async with self.http.get("/debug/live") as response:
            live = await response.json()
        self.assertGreater(live["live_bytes"], 10_000_000)
        async with self.http.post("/debug/trim") as response:
            trimmed = await response.json()
        self.assertLessEqual(trimmed["rss_after_bytes"], trimmed["rss_before_bytes"])
        self.assertLess(live["live_bytes"], trimmed["rss_after_bytes"])


class LeanServiceTest(ServiceTest):
    """The same answers where histories are read in pages."""

    page_events = "10"


class StandIn(unittest.TestCase):
    def setUp(self) -> None:
        port = free_port()
        command = [sys.executable, "-m", "event_store", "--port", str(port), "--dir", "/", "--stand-in"]
        self.process = subprocess.Popen(command, cwd=CASE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.stop)
        self.redis = redis.Redis(port=port)
        limit = time.monotonic() + 30
        while True:
            try:
                self.redis.ping()
                return
            except redis.ConnectionError:
                self.assertLess(time.monotonic(), limit, "the stand-in does not answer")
                time.sleep(0.1)

    def stop(self) -> None:
        self.redis.close()
        self.process.kill()
        _, said = self.process.communicate()
        self.assertIn("stand-in", said)

    def test_streams_and_hashes(self) -> None:
        payload = b"x" * 30_000
        for number in range(20):
            self.redis.xadd("run:a:events", {"number": number, "data": payload})
        self.redis.hset("run:a", "state", "completed")
        # redis-py's type allows for answers that these questions do not have.
        entries: Any = self.redis.xrange("run:a:events", "-", "+")
        self.assertEqual([fields[b"data"] for _, fields in entries], [payload] * 20)
        self.assertEqual(self.redis.hgetall("run:a"), {b"state": b"completed"})
        self.assertEqual(self.redis.xread({"run:a:events": entries[-1][0]}, block=50), [])
