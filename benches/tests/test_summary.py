"""The arithmetic of the tables, on runs made by hand."""

import json
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import publish  # noqa: E402
from suite import allocators, intervals, summary, tables, timings, trials  # noqa: E402
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

    def test_median_and_interval(self):
        self.assertEqual(tables.cell([3.0, 1.0, 2.0], 1), "2.0 (1.0-3.0)")
        self.assertEqual(tables.cell([1.01, 1.02], 1), "1.0")
        self.assertEqual(tables.cell([5.0], 1), "5.0")
        self.assertEqual(tables.cell([], 1), "failed")

    def test_a_missing_peer_is_named_and_a_failed_one_too(self):
        job = Job("return", "idle", ("return", "idle"))
        here = allocators.Allocator("glibc", "")
        away = allocators.Allocator("other", "", "/nowhere/*.so", "apt-get install other")
        special = allocators.Allocator("variant", "", special=True)
        text = tables.table([job], [here, away, special], trials.Trial(), tables.Figure("", summary.cpu_s))
        self.assertEqual(text.splitlines()[-1], "| idle | failed | not installed | - |")


def speed_trial(**medians_ns) -> tuple[list, list, trials.Trial]:
    """Rows `row0`, `row1`, ... with five equal runs an allocator."""
    names = [allocators.Allocator(name, "") for name in medians_ns]
    jobs = [Job("speed", f"row{i}") for i in range(len(next(iter(medians_ns.values()))))]
    trial = trials.Trial()
    for name, values in medians_ns.items():
        for job, ns in zip(jobs, values):
            run = {"ns_per_operation": ns, "wall_s": 1.0, "cpu_s": ns * 1e-9, "operations": 1, "peak_rss_bytes": MIB}
            trial.runs["speed", job.label, name] = [run] * 5
    return jobs, names, trial


class Speed(unittest.TestCase):
    def test_losing_rows_come_first(self):
        jobs, names, trial = speed_trial(glibc=[10, 10, 10], ebbmalloc=[9, 30, 11])
        ordered = tables.losing_first(jobs, trial, names, timings.TIME, relative=True)
        self.assertEqual([j.label for j in ordered], ["row1", "row2", "row0"])
        lines = timings.against_best(ordered, names, trial).splitlines()
        self.assertIn("| row1 | glibc | 3.00 (3.00-3.00) lost |", lines[6])
        self.assertIn("won", lines[8])

    def test_means_are_over_the_best_single_peer(self):
        jobs, names, trial = speed_trial(glibc=[10, 40], jemalloc=[20, 20], ebbmalloc=[10, 10])
        text = timings.means(jobs, names, trial)
        # Over the best of each row: ebbmalloc 1 and 1, glibc 1 and 4, jemalloc 2 and 2.
        self.assertIn("| ebbmalloc | 1.000 | 0.500 |", text)
        self.assertIn("| glibc | 2.000 | 1.000 |", text)

    def test_a_row_without_every_allocator_is_left_out_of_the_means_and_named(self):
        jobs, names, trial = speed_trial(glibc=[10, 40], ebbmalloc=[10, 10])
        del trial.runs["speed", "row1", "glibc"]
        self.assertIn("over 1 rows", timings.means(jobs, names, trial))
        self.assertIn("no figure: row1", timings.means(jobs, names, trial))

    def test_the_interval_of_a_ratio_holds_the_ratio_and_excludes_another(self):
        low, middle, high = intervals.ratio([20, 21, 22, 20.5, 21.5], [10, 10.2, 10.4, 10.1, 10.3])
        self.assertTrue(1.9 < low <= middle <= high < 2.3, (low, middle, high))


class Generator(unittest.TestCase):
    def test_the_bound_and_the_early_return(self):
        run = run_of(100, 60, 12, 12, 12, 12) | {"bound_above_live_bytes": 8 * MIB}
        self.assertFalse(summary.kept_promise(run, 5))
        self.assertTrue(summary.kept_promise(run | {"bound_above_live_bytes": 9 * MIB}, 5))
        self.assertTrue(summary.returned_early(run, 5))
        self.assertFalse(summary.returned_early(run_of(100, 60, 30, 12, 12, 12), 5))
        # Where nothing was to be returned, nothing was late.
        self.assertTrue(summary.returned_early(run_of(12, 12, 12, 12, 12, 12), 5))


class Publish(unittest.TestCase):
    PAGE = (
        "## Return\n\n- glibc: an allocator\n\n### Rows\n\n|  | glibc |\n| --- | --- |\n| idle | 1.0 (0.9-1.1) |\n"
        "\n### What did not run\n\n- 3 runs\n"
    )

    def test_tables_and_what_did_not_run_are_kept(self):
        tables, notes = publish.tables_of(self.PAGE)
        self.assertEqual(tables, [{"title": "Rows", "columns": ["", "glibc"], "rows": [["idle", "1.0 (0.9-1.1)"]]}])
        self.assertEqual(notes, ["3 runs"])

    def test_a_kept_result_has_its_date_and_command(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "2026-01-31-a-machine"
            folder.mkdir()
            (folder / "return.md").write_text(self.PAGE)
            record = {"machine": {"cpu": "A"}, "command": "benches/run.py return -o somewhere", "allocators": []}
            (folder / "return-machine.json").write_text(json.dumps(record))
            kept = publish.kept(folder, "return")
        self.assertEqual((kept["date"], kept["command"]), ("2026-01-31", "benches/run.py return"))
        self.assertEqual(json.loads(publish.text_of(kept)), kept)

    def test_a_picture_becomes_smaller_and_keeps_its_words(self):
        svg = """<?xml version="1.0"?>
<svg>
 <metadata>made by a program</metadata>
 <g id="text_1">
  <path id="m0123456789" d="M 0 0
L 1.234 5.01
" style="fill: none"/>
  <text style="font-family: A, B; x: 1" x="1.234">1.234</text>
  <use href="#m0123456789" style="fill: none"/>
 </g>
</svg>
"""
        small = """<svg>
<style>
*{stroke-linejoin:round}
.s0{fill: none}
.s1{font-family: sans-serif; x: 1}
</style>
<path id="i0" d="M0 0L1.2 5" class="s0"/>
<text class="s1" x="1.2">1.234</text>
<use href="#i0" class="s0"/>
</svg>
"""
        self.assertEqual(publish.small(svg), small)


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
