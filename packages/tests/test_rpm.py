"""The .rpm packages: checked by rpm and rpmlint, and their life in an empty root."""

import os
from pathlib import Path
import platform
import re
import shutil
import subprocess
import tempfile
import unittest

from made import DIST, needs, one
import debian
import test_debian

import components  # of packages/, as packer and system
import packer
import system

NAMES = ("ebb", "ebbmalloc", "ebbmalloc-devel", "ebbmalloc-jemalloc-compat")

EXPECTED = {
    "no-signature": "who publishes a release signs it",
    "no-group-tag": "Fedora has no groups",
    "statically-linked-binary": "so that it runs in every userland",
    "static-library-without-debuginfo": "it is in an archive of its own",
    "shared-library-without-dependency-information": "it needs no library",
    "missing-hash-section": "loaders read the GNU one",
    "non-versioned-file-in-library-package": "Fedora's library packages have no version in the name",
    "library-without-ldconfig-postin": "glibc's own package runs ldconfig after every installation",
    "library-without-ldconfig-postun": "the same",
}


def packages(arch: str, folder: Path = DIST, version: str = components.version()) -> list[Path]:
    return [folder / f"{name}-{version}-1.{arch}.rpm" for name in NAMES]


def archs() -> list[str]:
    one("SHA256SUMS")
    found = [arch for arch in debian.DEBIAN if packages(arch)[0].exists()]
    if not found:
        raise unittest.SkipTest(f"{DIST} has no .rpm: make dist")
    return found


@needs("rpm")
class Rpm(unittest.TestCase):
    def run_rpm(self, *arguments) -> str:
        done = subprocess.run(["rpm", *arguments], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_digests_and_fields(self):
        for arch in archs():
            for package in packages(arch):
                self.assertIn("digests OK", self.run_rpm("-K", "--nosignature", package))
                fields = self.run_rpm("-qip", "--nosignature", package)
                for name, value in (("Version", components.version()), ("Architecture", arch), ("License", "MIT OR Apache-2.0"),
                                    ("Build Host", "localhost")):
                    self.assertRegex(fields, rf"(?m)^{name} *: {re.escape(value)}$")

    def test_installed_upgraded_and_removed(self):
        if not packer.can_build():
            self.skipTest("Go 1.25 or later, which builds nfpm for the older packages, is missing")
        for arch in archs():
            with self.subTest(arch), tempfile.TemporaryDirectory() as folder:
                test_debian.older(arch, Path(folder))
                self.life(arch, Path(folder))

    def life(self, arch: str, folder: Path) -> None:
        root = folder / "root"
        root.mkdir()
        options = ["--root", root]
        change = [*options, "--ignorearch", "--nosignature"]
        older = packages(arch, folder / "older", test_debian.OLDER)
        self.run_rpm(*change, "--install", *older)
        gone = root / "usr/share/man/man1/ebb-older.1.gz"
        self.assertTrue(gone.exists())
        self.run_rpm(*change, "--upgrade", *packages(arch))
        self.assertFalse(gone.exists())
        self.assertEqual(sorted(self.run_rpm(*options, "-qa", "--qf", "%{name} %{version}\n").split("\n")[:-1]),
                         [f"{name} {components.version()}" for name in sorted(NAMES)])
        self.assertEqual(self.run_rpm(*options, "--verify", *NAMES), "")
        if arch == platform.machine():
            said = subprocess.run([root / "usr/bin/ebb", "--version"], check=True, capture_output=True, text=True).stdout
            self.assertIn(f"ebb {components.version()}", said)
        libraries = root / "usr/lib64"
        self.assertEqual((libraries / "libebbmalloc.so").resolve(), (libraries / system.SONAME).resolve())
        self.assertTrue((libraries / "ebbmalloc" / system.JEMALLOC).is_file())
        self.run_rpm(*options, "--erase", *NAMES)
        # Folders of the filesystem's own package, which this root lacks.
        left = [str(path.relative_to(root)) for path in root.rglob("*")]
        self.assertEqual([path for path in left if "rpmdb" not in path and ("ebb" in path or not (root / path).is_dir())], [])

    def test_the_development_package_needs_its_library(self):
        arch = archs()[0]
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(["rpm", "--root", folder, "--ignorearch", "--nosignature", "--install", packages(arch)[2]],
                                  capture_output=True, text=True)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(f"ebbmalloc = {components.version()}-1 is needed", done.stderr)


@needs("rpmlint")
class Rpmlint(unittest.TestCase):
    def test_no_error(self):
        """nfpm writes absolute names into the payload, which rpm takes for its own; rpmlint's cpio would unpack them over this
        machine's files."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        cpio = Path(folder.name) / "cpio"
        cpio.write_text(f'#!/bin/sh\nexec {shutil.which("cpio")} --no-absolute-filenames "$@"\n')
        cpio.chmod(0o755)
        for arch in archs():
            done = subprocess.run(["rpmlint", *packages(arch)], capture_output=True, text=True,
                                  env=os.environ | {"PATH": f"{folder.name}:{os.environ['PATH']}"})
            self.assertFalse(Path("/usr/lib64", system.SONAME).exists())
            errors = [line for line in done.stdout.splitlines() if ": E: " in line and line.split()[2] not in EXPECTED]
            self.assertEqual(errors, [], done.stdout + done.stderr)
