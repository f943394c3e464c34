"""How runs are made: their order, programs of others with a witness, settings put back."""

import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from suite import allocators, plans, programs, trials  # noqa: E402
from suite.plans import Job  # noqa: E402

BUILD = Path(__file__).resolve().parent.parent / "build"
GLIBC = allocators.Allocator("glibc", "")


class Order(unittest.TestCase):
    def test_repetition_then_row_then_allocator(self):
        both = [GLIBC, allocators.Allocator("other", "")]
        jobs = [Job("speed", "a"), Job("speed", "b", only=("other",)), Job("speed", "c", repetitions_most=1)]
        order = [(n, job.label, a.name) for n, job, a in trials.schedule(jobs, both, 2)]
        first = [(1, "a", "glibc"), (1, "a", "other"), (1, "b", "other"), (1, "c", "glibc"), (1, "c", "other")]
        self.assertEqual(order, first + [(2, "a", "glibc"), (2, "a", "other"), (2, "b", "other")])

    def test_runs_that_the_time_does_not_hold_are_told(self):
        jobs = [Job("return", f"row{i}", ("return", "idle", "--mib", "1", "--rest", "0.1")) for i in range(3)]
        with tempfile.TemporaryDirectory() as name:
            trial = trials.run_all(BUILD, jobs, [GLIBC], 1, Path(name) / "raw", limit_s=0.2)
            lines = (Path(name) / "raw").read_text().splitlines()
        self.assertLess(len(lines), 3)
        self.assertEqual(len(lines), sum(len(trial.of(job, GLIBC)) for job in jobs))
        self.assertIn("runs were not made", trial.troubles[-1])

    def test_every_label_is_a_row_of_its_own(self):
        for jobs in (
            plans.return_jobs(False),
            plans.speed_jobs(False, 2),
            plans.scale_jobs(False),
            plans.generator_jobs(False, 7, 50),
        ):
            self.assertEqual(len(jobs), len({job.label for job in jobs}))

    def test_rows_name_allocators_that_exist(self):
        known = {a.name for a in allocators.REGISTRY}
        for job in plans.return_jobs(False) + plans.scale_jobs(False) + plans.generator_jobs(False, 1, 1):
            self.assertLessEqual(set(job.only or ()), known, job.label)


class ProgramsOfOthers(unittest.TestCase):
    def run_program(self, *command: str, allocator=GLIBC) -> dict:
        program = programs.Program("a row", command, (command[0], "--version"))
        with mock.patch.object(programs.inputs, "make_all"):
            return programs.run_once(BUILD, program, allocator, 30)

    def test_a_run_is_witnessed_in_every_process(self):
        result = self.run_program("sh", "-c", "ls / && ls /")
        self.assertTrue(result["malloc_provider"].startswith("libc"))
        self.assertGreater(result["wall_s"], 0)

    def test_an_allocator_that_is_not_in_charge_discards_the_run(self):
        away = allocators.Allocator("other", "", "/nowhere/libother.so")
        with mock.patch.object(allocators.Allocator, "library", return_value=Path("/nowhere/libother.so")):
            with self.assertRaisesRegex(programs.RunFailed, "discarded: .* had libc"):
                self.run_program("ls", allocator=away)

    def test_a_program_that_fails_gives_no_figure(self):
        with self.assertRaisesRegex(programs.RunFailed, "exit 7"):
            self.run_program("sh", "-c", "exit 7")

    def test_a_missing_program_is_named_with_its_package(self):
        program = programs.Program("a row", ("no-such-program",), ("no-such-program",), install="a-package")
        self.assertIn("a-package", program.missing())

    def test_the_list_is_read_whole(self):
        names = [p.name for p in programs.listed()]
        self.assertIn("python float", names)
        self.assertIn("python float, PYTHONMALLOC=malloc", names)
        self.assertEqual(len(names), len(set(names)))


class HugePages(unittest.TestCase):
    def test_the_setting_is_put_back(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "khugepaged").mkdir()
            (folder / "enabled").write_text("always [madvise] never\n")
            for file in ("khugepaged/scan_sleep_millisecs", "khugepaged/alloc_sleep_millisecs"):
                (folder / file).write_text("10000\n")
            with mock.patch.object(trials, "HUGE_PAGES", folder), trials.huge_pages_always(eager=True) as trouble:
                self.assertIsNone(trouble)
                self.assertEqual((folder / "enabled").read_text(), "always")
            self.assertEqual((folder / "enabled").read_text(), "madvise")
            self.assertEqual((folder / "khugepaged/scan_sleep_millisecs").read_text(), "10000")

    def test_a_machine_that_refuses_is_said_so(self):
        with mock.patch.object(trials, "HUGE_PAGES", Path("/nowhere")), trials.huge_pages_always(eager=True) as trouble:
            self.assertIn("cannot be set to always", trouble)
