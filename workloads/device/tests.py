"""What an upload is turned into, what a round held, and the service under gunicorn with both kinds of workers.

Run: .venv/bin/python -m unittest. Needs libjemalloc.so.2 (Debian: libjemalloc2).
"""

import asyncio
import base64
from contextlib import ExitStack
import gzip
import json
from pathlib import Path
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.request

from load import MEAN_BYTES, bodies, uploads
from service.readings import InvalidUploadError, Uploads, figures, parse, summary

from answers import signals
from answers.rounds import rounds
from answers.tried import start_python

CASE = Path(__file__).parent


def batch(*entries: dict[str, object]) -> bytes:
    """A body of recordings; what an entry does not say has its default."""
    whole = {"sensor": "flow", "at_ms": 1, "unit": "C", "quality": 1, "tags": [], "samples": "AQA="}
    return json.dumps({"readings": [whole | entry for entry in entries]}).encode()


def samples(*values: int) -> str:
    return base64.b64encode(b"".join(v.to_bytes(2, "little", signed=True) for v in values)).decode()


class ReadingsTest(unittest.TestCase):
    def test_recordings_are_put_in_order_and_counted_once(self) -> None:
        found = parse(batch({"at_ms": 2}, {"at_ms": 1, "tags": ["b", "a"]}, {"at_ms": 2}))
        self.assertEqual([(r.at_ms, r.tags) for r in found], [(1, ("a", "b")), (2, ())])

    def test_figures_of_a_recording(self) -> None:
        told = figures(parse(batch({"samples": samples(3, -4)}))[0])
        self.assertAlmostEqual(told["mean"], -0.5)
        self.assertAlmostEqual(told["rms"], 12.5**0.5)
        self.assertEqual(told["peak"], 4)

    def test_the_last_recording_of_a_sensor_is_kept(self) -> None:
        body = batch({"samples": samples(9)}, {"at_ms": 5, "samples": samples(2)}, {"sensor": "b"})
        told = summary([figures(reading) for reading in parse(body)])
        self.assertEqual((told["flow"]["count"], told["flow"]["peak"], told["b"]["count"]), (2, 2, 1))

    def test_what_is_no_batch_is_refused(self) -> None:
        for body in (
            b"{",
            b"[]",
            b"{}",
            batch({"samples": ""}),
            batch({"samples": "AQ=="}),
            batch({"at_ms": "x"}),
            batch({"tags": 3}),
        ):
            with self.assertRaises(InvalidUploadError, msg=body):
                parse(body)

    def test_an_upload_is_archived_and_its_summary_kept(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            uploads = Uploads(Path(folder))
            told = uploads.take("d1", batch({"samples": samples(7)}))
            self.assertEqual(uploads.latest("d1"), told["sensors"])
            self.assertIsNone(uploads.latest("d2"))
            stored = json.loads(gzip.decompress((Path(folder) / "d1.json.gz").read_bytes()))
            self.assertEqual(stored["readings"][0]["samples"], [7])

    def test_bodies_have_the_size_that_the_case_had(self) -> None:
        made = bodies(1, 24)
        self.assertEqual(made, bodies(1, 24))
        mean = sum(map(len, made)) / len(made)
        self.assertLess(abs(mean / MEAN_BYTES - 1), 0.1, mean)
        self.assertTrue(parse(made[0]))


class RoundsTest(unittest.TestCase):
    def test_the_highest_of_a_load_and_the_end_of_a_rest(self) -> None:
        rss = {0.5: 9, 1.5: 50, 2.5: 70, 3.5: 60, 4.5: 30, 5.5: 20}
        run = {
            "phases": [
                {"name": "warm", "kind": "warmup", "round": 1, "from_s": 0, "to_s": 1},
                {"name": "load", "kind": "burst", "round": 1, "from_s": 1, "to_s": 3},
                {"name": "rest", "kind": "idle", "round": 1, "from_s": 3, "to_s": 6},
            ],
            "samples": [{"at_s": at, "rss_bytes": value * 1_000_000, "pss_bytes": None} for at, value in rss.items()],
        }
        self.assertEqual(rounds(run), [["load", "1", "70.0", "-"], ["rest", "1", "20.0", "-"]])


def threads(pid: int) -> list[str]:
    """The names of a process's threads."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [(task / "comm").read_text().strip() for task in tasks]


def children(pid: int) -> list[int]:
    return [int(of) for of in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class WorkersTest(unittest.TestCase):
    def serve(self, kind: str, preload: str = "no", **env: str) -> subprocess.Popen[bytes]:
        """Two workers that end with the test."""
        stack = self.enterContext(ExitStack())
        self.dir = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder = {"EBB_DIR": str(self.dir), "DEVICE_ARCHIVE": str(self.dir)}
        choices = {"EBB_PORT": "{port}", "DEVICE_WORKERS": "2", "DEVICE_KIND": kind, "DEVICE_PRELOAD": preload}
        gunicorn = ("gunicorn", "--config", "python:service.gunicorn_conf")
        self.url, process = start_python(stack, CASE, *gunicorn, **folder, **choices, **env)
        until = time.monotonic() + 120
        while len(children(process.pid)) < 2:
            self.assertLess(time.monotonic(), until, "the service does not get there")
            time.sleep(0.05)
        return process

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
