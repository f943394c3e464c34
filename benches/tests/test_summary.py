"""The arithmetic of the tables, on runs made by hand."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import publish  # noqa: E402
from suite import allocators, summary, trials  # noqa: E402
from suite.plans import Job  # noqa: E402

MIB = 2**20


def run_of(*above_mib: float) -> dict:
    return {"samples": [{"at_s": i * 1.0 + 0.0004, "above_live_bytes": a * MIB} for i, a in enumerate(above_mib)]}


class Summary(unittest.TestCase):
    def test_a_reading_is_never_taken_before_its_time(self):
        self.assertEqual(summary.above_live_mib(run_of(500, 300, 10), 1), 300)
        self.assertEqual(summary.above_live_mib(run_of(500, 300, 10), 1.5), 10)

    def test_a_run_that_ended_early_has_no_figure(self):
        self.assertIsNone(summary.above_live_mib(run_of(500, 300), 3))

    def test_median_and_range(self):
        self.assertEqual(summary.cell([3.0, 1.0, 2.0], 1), "2.0 (1.0-3.0)")
        self.assertEqual(summary.cell([1.01, 1.02], 1), "1.0")
        self.assertEqual(summary.cell([], 1), "failed")
        self.assertEqual(summary.cell([None, None], 1), "failed")

    def test_a_missing_peer_is_named_and_a_failed_one_too(self):
        job = Job("return", "idle", ("return", "idle"))
        here = allocators.Allocator("glibc", "")
        away = allocators.Allocator("other", "", "/nowhere/*.so", "apt-get install other")
        text = summary.table([job], [here, away], trials.Trial(), summary.cpu_s, 1)
        self.assertEqual(text.splitlines()[-1], "| idle | failed | not installed |")


class Publish(unittest.TestCase):
    def test_tables_replace_tables_and_nothing_else(self):
        begin, end = publish.MARKERS
        page = "before\n" + begin + "old\n" + end + "after\n"
        once = publish.with_tables(page, "day", ["## Return\n\n| new |\n"])
        self.assertEqual(publish.with_tables(once, "day", ["## Return\n\n| new |\n"]), once)
        self.assertTrue(once.startswith("before\n") and once.endswith("after\n"))
        self.assertIn("| new |", once)
        self.assertNotIn("old", once)
        with self.assertRaises(ValueError):
            publish.with_tables("no markers", "day", [])


class Provider(unittest.TestCase):
    def test_a_preload_that_did_not_happen_does_not_count(self):
        jemalloc = allocators.Allocator("jemalloc", "", "/usr/lib/*/libjemalloc.so.2")
        self.assertFalse(jemalloc.provider_matches("/lib/x86_64-linux-gnu/libc.so.6"))
        self.assertTrue(allocators.Allocator("glibc", "").provider_matches("/lib/x86_64-linux-gnu/libc.so.6"))

    def test_settings_of_the_caller_do_not_leak_into_a_run(self):
        import os
        from unittest import mock

        with mock.patch.dict(os.environ, {"MALLOC_CONF": "x", "MALLOC_ARENA_MAX": "1", "LD_PRELOAD": "y", "KEPT": "1"}):
            environment = allocators.Allocator("glibc", "").run_environment()
        self.assertNotIn("MALLOC_CONF", environment)
        self.assertNotIn("MALLOC_ARENA_MAX", environment)
        self.assertNotIn("LD_PRELOAD", environment)
        self.assertEqual(environment["KEPT"], "1")


if __name__ == "__main__":
    unittest.main()
