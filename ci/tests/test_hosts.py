"""The matrix of hosts takes its cases from the preload suite, and has what docs/hosts.md promises."""

import json
from pathlib import Path
import re
import sys
import unittest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "ci/hosts"))

import cases  # noqa: E402
import run  # noqa: E402


class Cases(unittest.TestCase):
    def setUp(self):
        self.cases = cases.all_cases()

    def test_every_line_of_the_suite_is_read(self):
        lines = re.findall(r'\w+: (?:Plain|Musl) "', (cases.SUITE / "cases.rs").read_text())
        # Figures, loading, and what has no such line.
        other = re.compile(r"figures_are_true|loading::|misuse::|namespaces::|seccomp::[a-z_+]+_E(PERM|NOSYS)_")
        self.assertEqual(len([case for case in self.cases if not other.search(case.name)]), len(lines))

    def test_methods_become_arguments_and_environment(self):
        named = {case.name: case for case in self.cases}
        torn = named["forks::child_copied_while_threads_allocate_allocates"]
        self.assertEqual((torn.command, torn.environment), (["forks", "torn", "60", "2"], {"EBB_CONF": "dirty_decay_ms:20"}))
        limited = named["limits::data_exhausted_and_freed"]
        self.assertEqual(limited.through, ["prlimit", "--data=536870912"])
        loader = named["storms::six_threads_fork_while_others_hold_the_locks_of_loader_and_locale"]
        self.assertEqual(loader.command, ["storms", "loader", "1", "@plugin"])

    def test_names_are_unique_and_programs_exist(self):
        self.assertEqual(len({case.name for case in self.cases}), len(self.cases))
        programs = {case.command[0] for case in self.cases} | set(run.OBJECTS)
        self.assertEqual([name for name in programs if not list(cases.PROGRAMS.glob(f"{name}.c*"))], [])


class Result(unittest.TestCase):
    def test_what_may_not_be_empty(self):
        hosts = json.loads((run.HERE / "result.json").read_text())["hosts"]
        glibc = {host["libcs"]["glibc"]["version"] for host in hosts}
        self.assertLessEqual({"2.31", "2.36", "2.41"}, glibc)
        self.assertTrue(any(tuple(map(int, version.split("."))) >= (2, 43) for version in glibc))
        self.assertTrue(all(host["libcs"]["musl"]["cases"] for host in hosts))
        kernels = {".".join(host["kernel"].split(".")[:2]) for host in hosts if host["emulated"]}
        self.assertLessEqual({"5.10", "6.1", "6.12"}, kernels)
        self.assertEqual({host["arch"] for host in hosts}, {"x86_64", "aarch64"})
        self.assertLessEqual({4096, 16384, 65536}, {host["page_bytes"] for host in hosts})
