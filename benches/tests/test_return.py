"""The measurement measured: allocators with a known result, and one with a known fault."""

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

BENCHES = Path(__file__).resolve().parent.parent
MIB = 2**20


class ReturnProgram(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        subprocess.run(["make", "-C", BENCHES, "-s"], check=True)
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)

    def preload(self, name: str) -> str:
        library = f"{self.folder.name}/{name}.so"
        source = str(BENCHES / "tests" / f"{name}.c")
        subprocess.run(["cc", "-O1", "-fno-builtin", "-shared", "-fPIC", "-o", library, source], check=True)
        return library

    def run_return(self, *arguments: str, preload: str | None = None) -> tuple[int, dict]:
        environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
        if preload:
            environment["LD_PRELOAD"] = preload
        command = [BENCHES / "build/return", *arguments, "--rest", "0.5"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        return done.returncode, json.loads(done.stdout)

    def test_page_exact_allocator_measures_the_bound(self):
        for pattern in ("survivors", "mid", "idle", "handoff", "subscribers"):
            with self.subTest(pattern):
                status, run = self.run_return(pattern, "--mib", "48", preload=self.preload("exact"))
                self.assertEqual(status, 0)
                self.assertTrue(run["malloc_provider"].endswith("exact.so"))
                above = run["samples"][-1]["above_live_bytes"] - run["bound_above_live_bytes"]
                # Stacks of the threads and first touches of the program's own pages.
                self.assertLess(abs(above), 0.3 * MIB)

    def test_a_block_given_out_twice_is_seen(self):
        status, run = self.run_return("survivors", "--mib", "16", preload=self.preload("broken"))
        self.assertEqual(status, 4)
        self.assertGreater(run["wrong_bytes"], 0)

    def test_generated_workloads_measure_their_bound(self):
        for seed in range(11, 17):
            with self.subTest(seed=seed):
                status, run = self.run_return("generated", "--seed", str(seed), preload=self.preload("exact"))
                self.assertEqual(status, 0)
                above = run["samples"][-1]["above_live_bytes"] - run["bound_above_live_bytes"]
                # A busy thread may be read while it holds all of a request's 32 blocks, each on a page of its own.
                in_use = run["threads"] * 32 * 4096 if run["after"] == "busy" else 0
                self.assertLess(abs(above), 0.3 * MIB + in_use)

    def test_a_seed_draws_the_same_under_every_allocator_and_another_draws_another(self):
        _, one = self.run_return("generated", "--seed", "3")
        _, same = self.run_return("generated", "--seed", "3", preload=self.preload("exact"))
        _, other = self.run_return("generated", "--seed", "4")
        for key in ("drawn", "threads", "after", "requests", "requested_bytes", "survivors", "live_bytes"):
            self.assertEqual(one[key], same[key], key)
        self.assertNotEqual(one["drawn"], other["drawn"])

    def test_a_generated_workload_sees_a_block_given_out_twice(self):
        status, run = self.run_return("generated", "--seed", "3", preload=self.preload("broken"))
        self.assertEqual(status, 4)
        self.assertGreater(run["wrong_bytes"], 0)

    def test_many_threads_do_not_cost_what_is_not_the_allocators(self):
        status, run = self.run_return("idle", "--threads", "1000", "--mib", "32", preload=self.preload("exact"))
        self.assertEqual(status, 0)
        self.assertLess(abs(run["samples"][-1]["above_live_bytes"]), 1.5 * MIB)
        _, counted = self.run_return("idle", "--threads", "1000", "--mib", "32", "--stacks", preload=self.preload("exact"))
        self.assertGreater(counted["samples"][-1]["above_live_bytes"], 4 * MIB)

    def test_cpu_of_the_allocators_threads_is_none_where_it_has_none(self):
        for after in ("asleep", "gone", "computing"):
            _, run = self.run_return("idle", "--mib", "64", "--after", after)
            # Forgotten threads would be all of it; starting and ending them is some of it on a busy machine.
            self.assertLess(abs(run["allocator_rest_cpu_s"]), 0.05, after)
            self.assertGreater(run["burst_cpu_s"], 3 * abs(run["allocator_burst_cpu_s"]), after)

    def test_glibc_keeps_the_burst(self):
        _, run = self.run_return("survivors", "--mib", "64")
        self.assertGreater(run["samples"][-1]["above_live_bytes"], 48 * MIB)

    def test_requests_and_survivors_are_the_same_for_every_allocator(self):
        _, one = self.run_return("tiny", "--mib", "8")
        _, other = self.run_return("tiny", "--mib", "8", preload=self.preload("broken"))
        for key in ("requests", "requested_bytes", "survivors", "live_bytes"):
            self.assertEqual(one[key], other[key], key)

    def test_refused_call_is_refused(self):
        done = subprocess.run([BENCHES / "build/return", "--refuse", "read", "idle"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 64)
        # The program itself tries each call and ends if it is not answered as asked.
        every = "process_madvise:ENOSYS,membarrier,madvise,mremap:ENOSYS"
        status, run = self.run_return("idle", "--mib", "8", "--refuse", every)
        self.assertEqual((status, run["refused"], run["refused_late"]), (0, every, False))
        status, run = self.run_return("idle", "--mib", "8", "--refuse", every, "--late")
        self.assertEqual((status, run["refused_late"]), (0, True))
