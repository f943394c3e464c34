"""packages/release.py in a small repository of its own, and once in a clone of this one."""

import os
from pathlib import Path
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from made import ROOT

MANIFEST = """[workspace]
resolver = "2"
members = ["crates/*"]

[workspace.package]
version = "0.1.0"
repository = "https://example.org/it"

[workspace.dependencies]
lower = { version = "=0.1.0", path = "crates/lower" }
"""
CRATE = '[package]\nname = "{}"\nversion.workspace = true\nedition = "2021"\n\n[dependencies]\n'
LOCK = 'version = 4\n\n[[package]]\nname = "apart"\nversion = "0.1.0"\n\n[[package]]\nname = "lower"\nversion = "0.1.0"\n'
CHANGELOG = "# Changelog\n\n## Unreleased\n\n### Added\n\n- An [entry](docs/page.md).\n"
MAKEFILE = "dist:\n\tmkdir -p dist\n\techo 1 >dist/half\n\tsh ./dist.sh\n"
FILES = {
    "Cargo.toml": MANIFEST,
    "crates/lower/Cargo.toml": CRATE.format("lower"),
    "crates/lower/src/lib.rs": "",
    "crates/upper/Cargo.toml": CRATE.format("upper") + "lower.workspace = true\n",
    "crates/upper/src/lib.rs": "",
    "crates/test-upper/Cargo.toml": CRATE.format("test-upper").replace("[dep", "publish = false\n\n[dep").replace("\n\npub", "\npub"),
    "crates/test-upper/src/lib.rs": "",
    "apart/Cargo.lock": LOCK,
    "packages/kubernetes/Chart.yaml": "version: 0.1.0\nappVersion: 0.1.0\n",
    "packages/kubernetes/kustomization.yaml": "images:\n  - name: ebb\n    newTag: 0.1.0\n",
    "CHANGELOG.md": CHANGELOG,
    "Makefile": MAKEFILE,
    "dist.sh": "touch dist/ebbmalloc-0.2.0-image.tar",
    ".gitignore": "/dist/\n/target/\n__pycache__/\n",
}


class Release(unittest.TestCase):
    def setUp(self):
        self.tree = Path(self.enterContext(tempfile.TemporaryDirectory())) / "tree"

    def small(self, **changed):
        """A repository with these files, committed on main."""
        shutil.rmtree(self.tree, ignore_errors=True)
        for name, text in (FILES | changed).items():
            (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
            (self.tree / name).write_text(text)
        for name in ("components", "crates", "release"):
            shutil.copy(ROOT / f"packages/{name}.py", self.tree / "packages")
        self.git("init", "--quiet", "--initial-branch=main")
        subprocess.run(["cargo", "generate-lockfile", "--offline", "--quiet"], cwd=self.tree, check=True)
        self.commit()

    def command(self, *command, **options):
        """Without settings of this machine's git, and with a name to commit by."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("GIT_", "CARGO_TARGET", "MAKE", "MFLAGS"))}
        environment |= {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@b",
                        "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@b"}
        return subprocess.Popen(command, cwd=self.tree, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)

    def git(self, *arguments):
        child = self.command("git", *arguments)
        out, error = child.communicate()
        self.assertEqual(child.returncode, 0, error)
        return out

    def commit(self):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "x")

    def state(self):
        return self.git("rev-parse", "HEAD"), self.git("tag"), self.git("status", "--porcelain"), (self.tree / "dist").exists()

    def release(self, *arguments):
        child = self.command(sys.executable, "packages/release.py", *arguments)
        out, error = child.communicate()
        return child.returncode, out, error

    def refused(self, version, message):
        """One line, and nothing changed."""
        before = self.state()
        status, _, error = self.release(version)
        self.assertEqual(status, 1)
        self.assertEqual(error.splitlines()[-1], f"release: {message}")
        self.assertEqual(self.state(), before)
        return error

    def test_bad_input_is_one_line(self):
        self.small()
        cases = {
            "": "no version: make release VERSION=0.1.0",
            "0.2": "VERSION=0.2 is not of the form 1.2.3",
            "v0.2.0": "VERSION=v0.2.0 is not of the form 1.2.3",
            "0.02.0": "VERSION=0.02.0 is not of the form 1.2.3",
            "0.2.0-rc1": "VERSION=0.2.0-rc1 is not of the form 1.2.3",
            "0.0.9": "VERSION=0.0.9 is lower than 0.1.0, the version in Cargo.toml",
        }
        for version, message in cases.items():
            with self.subTest(version):
                self.assertEqual(len(self.refused(version, message).splitlines()), 1)

    def test_a_tree_that_is_not_ready_is_refused(self):
        changes = {
            "the tree is not clean: crates/lower/src/lib.rs": lambda: (self.tree / "crates/lower/src/lib.rs").write_text("//"),
            "the tree is not clean: new and others": lambda: [(self.tree / name).touch() for name in ("new", "newer")],
            "topic is checked out: git switch main": lambda: self.git("switch", "--quiet", "--create", "topic"),
            "no branch is checked out: git switch main": lambda: self.git("switch", "--quiet", "--detach"),
            "VERSION=0.2.0 is not higher than v0.10.0, the newest release":
                lambda: [self.git("tag", tag) for tag in ("v0.9.0", "v0.10.0", "v-old")],
        }
        for message, change in changes.items():
            with self.subTest(message):
                self.small()
                change()
                self.assertEqual(len(self.refused("0.2.0", message).splitlines()), 1)

    def test_without_entries_there_is_no_release(self):
        for changelog in ("# Changelog\n", "# Changelog\n\n## Unreleased\n\n### Added\n\n## 0.0.1\n\n- Old.\n"):
            with self.subTest(changelog):
                self.small(**{"CHANGELOG.md": changelog})
                self.refused("0.2.0", "CHANGELOG.md has no entries under Unreleased")

    def test_what_fails_on_the_way_is_undone(self):
        cases = {
            "make dist ended with status 2": {"dist.sh": "exit 1"},
            "other: not of the workspace's version":
                {"crates/other/Cargo.toml": '[package]\nname = "other"\nversion = "3.0.0"\n', "crates/other/src/lib.rs": ""},
        }
        for message, changed in cases.items():
            with self.subTest(message):
                self.small(**changed)
                self.refused("0.2.0", message)
        self.small()
        hook = self.tree / ".git/hooks/pre-commit"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text("#!/bin/sh\necho no >&2\nexit 1\n")
        hook.chmod(0o755)
        self.refused("0.2.0", "git commit: no")

    def test_a_signal_undoes_it_too(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(number):
                self.small(**{"dist.sh": "sleep 60"})
                before = self.state()
                # A shell's command in the background ignores SIGINT.
                child = self.command(sys.executable, "packages/release.py", "0.2.0", start_new_session=True,
                                     preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
                while not (self.tree / "dist/half").exists():
                    self.assertIsNone(child.poll())
                    time.sleep(0.05)
                os.killpg(child.pid, number)
                child.communicate()
                self.assertNotEqual(child.returncode, 0)
                self.assertEqual(self.state(), before)

    def test_the_present_version_is_released_once(self):
        self.small()
        status, out, error = self.release("0.1.0")
        self.assertEqual((status, error), (0, ""))
        self.assertRegex((self.tree / "CHANGELOG.md").read_text(), r"## Unreleased\n\n## 0\.1\.0 \(\d{4}-\d\d-\d\d\)\n\n### Added\n\n- An ")
        self.assertEqual(self.git("show", "--name-only", "--format=", "HEAD"), "CHANGELOG.md\n")
        self.assertEqual(self.git("describe").strip(), "v0.1.0")
        self.assertIn("make test-long has not run on this commit", out)
        self.refused("0.1.0", "VERSION=0.1.0 is not higher than v0.1.0, the newest release")
        self.refused("0.1.1", "CHANGELOG.md has no entries under Unreleased")

    def test_a_higher_version_stands_everywhere(self):
        self.small()
        (self.tree / "target").mkdir()
        commit = self.git("rev-parse", "--short", "HEAD").strip()
        (self.tree / "target/test-long.log").write_text(f"commit    {commit}\n\nSKIPPED: a tool is missing\n0 steps failed\n")
        status, out, error = self.release("0.2.0")
        self.assertEqual((status, error), (0, ""))
        self.assertEqual(MANIFEST.replace("0.1.0", "0.2.0"), (self.tree / "Cargo.toml").read_text())
        self.assertEqual((self.tree / "Cargo.lock").read_text().count('version = "0.2.0"'), 3)
        # A package of the same version that is not of the workspace.
        self.assertEqual((self.tree / "apart/Cargo.lock").read_text(), LOCK.replace('lower"\nversion = "0.1', 'lower"\nversion = "0.2'))
        chart = "".join((self.tree / "packages/kubernetes" / name).read_text() for name in ("Chart.yaml", "kustomization.yaml"))
        self.assertEqual(re.findall(r"\d\.\d\.\d", chart), ["0.2.0"] * 3)
        notes = self.git("tag", "--list", "--format=%(contents)", "v0.2.0")
        self.assertTrue(notes.startswith("ebbmalloc 0.2.0\n\n### Added\n\n- An [entry](https://example.org/it/blob/v0.2.0/docs/page.md)."), notes)
        self.assertEqual(self.git("status", "--porcelain"), "")
        self.assertIn("make test-long: 0 steps failed, 1 skipped", out)
        commands = re.findall(r"^    (.*)$", out, re.MULTILINE)
        self.assertEqual(commands, [
            "git push --atomic origin main v0.2.0",
            "cargo publish --locked --package lower",
            "cargo publish --locked --package upper",
            "twine upload dist/ebbmalloc-0.2.0-*.whl",
            "gh release create v0.2.0 --verify-tag --notes-from-tag dist/*",
            "skopeo copy --all --preserve-digests oci-archive:dist/ebbmalloc-0.2.0-image.tar docker://ghcr.io/ebbmalloc/ebb:0.2.0",
        ])

    def test_this_repository(self):
        subprocess.run(["git", "clone", "--quiet", "--shared", ROOT, self.tree], check=True)
        self.git("switch", "--quiet", "--force-create", "main")
        changelog = self.tree / "CHANGELOG.md"
        changelog.write_text(changelog.read_text().replace("\n## Unreleased\n", "\n## Unreleased\n\n- An entry.\n", 1))
        self.commit()
        files = {name for name in self.git("ls-files").split() if name.endswith("Cargo.lock")} | {"CHANGELOG.md", "Cargo.toml"}
        files |= {f"packages/kubernetes/{name}.yaml" for name in ("Chart", "kustomization")}
        status, out, error = self.release("--no-dist", "17.0.0")
        self.assertEqual((status, error), (0, ""))
        changed = set(self.git("show", "--name-only", "--format=", "HEAD").split())
        self.assertEqual(changed, files - {"benches/peers/Cargo.lock"})
        self.assertLess(out.index("publish --locked --package ebbmalloc-core\n"), out.index("publish --locked --package ebbmalloc\n"))
        self.assertNotIn("test-", re.sub("make test.*", "", out))
