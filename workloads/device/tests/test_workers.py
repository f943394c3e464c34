"""The service under gunicorn, both kinds of workers, and what a fork leaves of jemalloc's thread.

Run: .venv/bin/python -m unittest. Needs libjemalloc.so.2 (Debian: libjemalloc2).
"""

import asyncio
from collections.abc import Callable
import os
from pathlib import Path
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

from load.bodies import bodies
from load.uploads import uploads

from answers import signals
from answers.tried import free_port

CASE = Path(__file__).parent.parent


def threads(pid: int) -> list[str]:
    """The names of a process's threads."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [(task / "comm").read_text().strip() for task in tasks]


def children(pid: int) -> list[int]:
    """Its workers."""
    return [int(of) for of in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class WorkersTest(unittest.TestCase):
    def serve(self, kind: str, preload: str = "no", **env: str) -> subprocess.Popen[bytes]:
        """Two workers that end with the test."""
        self.dir = Path(self.enterContext(tempfile.TemporaryDirectory()))
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        ours = {
            "EBB_PORT": str(port),
            "EBB_DIR": str(self.dir),
            "DEVICE_ARCHIVE": str(self.dir),
            "DEVICE_WORKERS": "2",
            "DEVICE_KIND": kind,
            "DEVICE_PRELOAD": preload,
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "gunicorn", "--config", "python:service.gunicorn_conf"],
            cwd=CASE,
            env={**os.environ, **ours, **env},
            stderr=subprocess.DEVNULL,
        )

        def stop() -> None:
            process.terminate()
            process.wait(timeout=60)

        self.addCleanup(stop)
        self.wait_for(lambda: self.answers_health() and len(children(process.pid)) == 2)
        return process

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Until it holds."""
        until = time.monotonic() + 120
        while not condition():
            self.assertLess(time.monotonic(), until, "the service does not get there")
            time.sleep(0.05)

    def answers_health(self) -> bool:
        try:
            with urllib.request.urlopen(self.url + "/health") as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, ConnectionError):
            return False

    def upload(self) -> None:
        """Some uploads, each checked by the load."""
        outcome = asyncio.run(uploads(self.url, bodies(1, 4), 4, 8))
        self.assertEqual((outcome.errors, len(outcome.latencies_ms)), ([], 8))

    def test_both_kinds_take_uploads_and_answer_the_trial(self) -> None:
        for kind, preload in (("gthread", "no"), ("gthread", "yes"), ("uvicorn", "no")):
            with self.subTest(kind=kind, preload=preload):
                service = self.serve(kind, preload)
                self.upload()
                live = signals.ask("live", self.dir)
                self.assertEqual(set(live), {service.pid, *children(service.pid)})
                for answer in live.values():
                    self.assertGreater(int(str(answer["live_bytes"])), 5_000_000)
                self.assertEqual(set(signals.ask("trim", self.dir)), set(live))

    def test_what_is_no_batch_is_refused(self) -> None:
        for kind in ("gthread", "uvicorn"):
            self.serve(kind)
            with self.assertRaises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(self.url + "/v1/devices/d/readings", data=b"[]")
            self.assertEqual(refused.exception.code, 422)
            refused.exception.close()

    def test_jemallocs_background_thread_does_not_survive_the_fork(self) -> None:
        service = self.serve(
            "gthread",
            LD_PRELOAD="libjemalloc.so.2",
            MALLOC_CONF="background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:1000",
        )
        self.upload()
        self.assertIn("jemalloc_bg_thd", threads(service.pid))
        for worker in children(service.pid):
            self.assertIn("libjemalloc", Path(f"/proc/{worker}/maps").read_text())
            self.assertNotIn("jemalloc_bg_thd", threads(worker))


if __name__ == "__main__":
    unittest.main()
