"""What `make demo` and `make test` say on machines that lack something. A machine is a PATH of its own.

Run: python3 -m unittest discover -s ci/tests
"""

import os
from pathlib import Path
import re
import shutil
import subprocess
import tempfile
import unittest

CI = Path(__file__).resolve().parent.parent
TOOLS = "bash env sed awk df dirname grep sort head paste find comm id uname cat rm chmod mkdir tail".split()
WANTED = re.search(r'^rust-version = "(.*)"', (CI.parent / "Cargo.toml").read_text(), re.MULTILINE)[1]


class Machine(unittest.TestCase):
    def setUp(self):
        self.machine()

    def machine(self):
        """One that has all."""
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool))
        self.program("cargo", "echo cargo 1.99.0")
        self.program("rustc", "echo 'rustc 1.99.0 (abc 2030-01-01)'")
        self.program("python3", "case $2 in *version_info*) echo 3.11.2 ;; esac")
        self.program("g++", ":")

    def program(self, name, body):
        """Makes a script; removes the program where it has none."""
        file = self.bin / name
        file.unlink(missing_ok=True)
        if body is not None:
            file.write_text(f"#!/bin/bash\n{body}\n")
            file.chmod(0o755)

    def run_script(self, *command, root=CI.parent, **variables):
        environment = {"PATH": str(self.bin), "HOME": str(self.folder), **variables}
        return subprocess.run(
            [str(root / command[0]), *command[1:]], env=environment, text=True, capture_output=True,
            stdin=subprocess.DEVNULL, timeout=60,
        )

    def needs(self, target="demo", free_mb="1", packages=("build-essential", "python3"), **variables):
        return self.run_script("ci/needs.sh", target, free_mb, *packages, **variables)


class Needs(Machine):
    def test_a_machine_that_has_all_hears_nothing(self):
        done = self.needs()
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_what_is_missing_is_said_with_what_to_do(self):
        # Programs that differ from a machine that has all, options, the output.
        cases = {
            "Debian 12's Rust": (
                {"rustc": "echo 'rustc 1.63.0'"}, {},
                f"needed   Rust {WANTED} or later", "found    rustc 1.63.0", "sh.rustup.rs | sh",
            ),
            "an old Rust of rustup": ({"rustc": "echo 'rustc 1.87.0'", "rustup": ":"}, {}, "do       rustup update stable"),
            "no cargo": ({"cargo": None}, {}, "found    no cargo"),
            "an old Python": ({"python3": "echo 3.9.2"}, {}, "needed   Python 3.11 or later", "found    3.9.2"),
            "a path with a space": ({}, {"CARGO_TARGET_DIR": "/nowhere/with space"}, "without spaces and colons"),
            "a path with a colon": ({}, {"CARGO_TARGET_DIR": "/nowhere/with:colon"}, "without spaces and colons"),
            "a full disk": ({}, {"free_mb": "999999999", "CARGO_TARGET_DIR": "/nowhere"}, "needed   999999999 MB of free disk"),
        }
        for name, (programs, options, *expected) in cases.items():
            with self.subTest(name):
                self.machine()
                for program, body in programs.items():
                    self.program(program, body)
                done = self.needs(**options)
                self.assertEqual(done.returncode, 1)
                for text in expected:
                    self.assertIn(text, done.stderr)

    def test_cargo_that_is_not_on_the_path(self):
        (self.folder / ".cargo/bin").mkdir(parents=True)
        (self.bin / "cargo").rename(self.folder / ".cargo/bin/cargo")
        self.assertIn('.cargo/env"', self.needs().stderr)

    def test_no_clippy(self):
        self.program("cargo", "exit 101")
        self.assertIn("rustup component add clippy rustfmt", self.needs("test").stderr)
        self.assertEqual(self.needs("demo").returncode, 0)

    def test_all_that_is_missing_is_said_at_once(self):
        self.program("rustc", "echo 'rustc 1.63.0'")
        (self.bin / "g++").unlink()
        done = self.needs()
        self.assertIn("Rust", done.stderr)
        self.assertIn("do       apt-get update && apt-get install --no-install-recommends build-essential", done.stderr)

    def test_packages_of_some_tests_may_be_missing(self):
        done = self.needs(packages=("build-essential", "some"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("valgrind", done.stderr)
        self.assertIn("are skipped", done.stderr)
        self.assertEqual(self.needs(packages=("build-essential", "some"), EBB_REQUIRE_ALL="1").returncode, 1)


class Install(Machine):
    """apt-get is the machine's; what it does is written down."""

    def setUp(self):
        super().setUp()
        self.log = self.folder / "log"
        # While packages are installed, services must be forbidden.
        self.program(
            "apt-get",
            f'echo "$*" >>{self.log}; [[ $1 == update ]] || /usr/sbin/policy-rc.d x start || echo "policy $?" >>{self.log}',
        )
        self.program("id", "echo 0")
        # For one that dpkg is asked about.
        self.program("dpkg-query", "exit 1")

    def calls(self):
        return self.log.read_text() if self.log.exists() else ""

    def test_nothing_is_installed_without_a_yes(self):
        done = self.run_script("ci/install.sh", "a-package")
        self.assertEqual((done.returncode, self.calls()), (1, ""))
        self.assertIn("apt-get install --no-install-recommends a-package", done.stderr)
        self.assertIn("INSTALL=1", done.stderr)

    @unittest.skipUnless(os.geteuid() == 0, "only root can write /usr/sbin/policy-rc.d")
    def test_without_a_terminal_only_what_nothing_works_without_is_installed(self):
        done = self.needs(packages=("a-package", "some"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("not installed: a-package", done.stderr)
        self.assertIn("install -y -qq --no-install-recommends a-package\n", self.calls())
        self.assertEqual(self.calls().count("install -y"), 1)

    def test_install_0_installs_nothing(self):
        done = self.needs(packages=("a-package",), INSTALL="0")
        self.assertEqual((done.returncode, self.calls()), (1, ""))

    def test_what_is_optional_may_stay_away(self):
        done = self.run_script("ci/install.sh", "--optional", "a-package")
        self.assertEqual((done.returncode, self.calls()), (0, ""))

    def test_only_root_installs(self):
        self.program("id", "echo 1000")
        done = self.run_script("ci/install.sh", "a-package", INSTALL="1")
        self.assertEqual((done.returncode, self.calls()), (1, ""))

    def test_missing_packages_are_listed(self):
        done = self.run_script("ci/install.sh", "--list", "must", "a-package")
        self.assertIn("a-package", done.stdout.split())
        self.assertNotIn("build-essential", done.stdout.split())

    @unittest.skipUnless(os.geteuid() == 0, "only root can write /usr/sbin/policy-rc.d")
    def test_services_are_forbidden_while_packages_are_installed(self):
        policy = Path("/usr/sbin/policy-rc.d")
        before = policy.read_bytes() if policy.exists() else None
        done = self.run_script("ci/install.sh", "a-package", INSTALL="1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("install -y -qq --no-install-recommends a-package", self.calls())
        self.assertIn("policy 101", self.calls())
        self.assertEqual(policy.read_bytes() if policy.exists() else None, before)


class Report(unittest.TestCase):
    def report(self, target, *options):
        environment = os.environ | {"CARGO_TARGET_DIR": target}
        return subprocess.run([CI / "report.py", *options], env=environment, text=True, capture_output=True, check=True).stdout

    def test_the_list_says_what_was_slow_and_what_to_install(self):
        target = self.enterContext(tempfile.TemporaryDirectory())
        Path(target, "times.tsv").write_text("0.5\tebb why::a\n12.25\tebb why::b\n")
        ruby = "package\truby\tpreload::ruby\n"
        Path(target, "skipped.tsv").write_text(f"{ruby}{ruby}reason\tno cgroup\tpreload::cgroup\n")
        said = self.report(target)
        self.assertIn("2 tests, which took 13 s in sum:\n     12.2 s  ebb why::b\n      0.5 s  ebb why::a\n", said)
        self.assertEqual(said.count("preload::ruby: needs the package ruby"), 1)
        self.assertIn("preload::cgroup: no cgroup", said)
        self.assertIn("apt-get install --no-install-recommends ruby\n", said)
        self.assertEqual(self.report(target, "--clear") + self.report(target), "")
