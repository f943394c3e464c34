"""What an upload is turned into. Run: .venv/bin/python -m unittest"""

import base64
import gzip
import json
from pathlib import Path
import tempfile
import unittest

from load.bodies import MEAN_BYTES, bodies
from service.readings import InvalidUploadError, Uploads, figures, parse, summary


def batch(*entries: dict[str, object]) -> bytes:
    """A body of recordings; what an entry does not say has its default."""
    whole = {"sensor": "flow", "at_ms": 1, "unit": "C", "quality": 1, "tags": [], "samples": "AQA="}
    return json.dumps({"readings": [whole | entry for entry in entries]}).encode()


def samples(*values: int) -> str:
    """Values as they are uploaded."""
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


if __name__ == "__main__":
    unittest.main()
