"""The stand-in for redis-server answers what the service and its load ask."""

from pathlib import Path
import subprocess
import sys
import time
from typing import Any
import unittest

from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from answers.tried import free_port

WORKLOAD = Path(__file__).resolve().parent.parent


class StandIn(unittest.TestCase):
    def setUp(self) -> None:
        port = free_port()
        command = [sys.executable, "-m", "load.store", "--port", str(port), "--dir", "/", "--stand-in"]
        self.process = subprocess.Popen(command, cwd=WORKLOAD, stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.stop)
        self.redis = Redis(port=port)
        limit = time.monotonic() + 30
        while True:
            try:
                self.redis.ping()
                return
            except RedisConnectionError:
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


if __name__ == "__main__":
    unittest.main()
