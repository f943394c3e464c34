"""The wheel, installed by pip and uv into empty environments."""

import os
from pathlib import Path
import shutil
import subprocess
import sys
import tempfile
import unittest
from zipfile import ZipFile

from made import BARE, VERDICTS, one

# Not that of a virtual environment, which may have no pip.
BASE = str(Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}"))

CALL = """
import ebbmalloc
held = [bytearray(100_000) for _ in range(100)]
full = ebbmalloc.stats()
held.clear()
print(full.live_bytes > 10_000_000, full.mapped_bytes >= full.live_bytes, full.metadata_bytes > 0, type(ebbmalloc.trim()) is bool)
print(ebbmalloc.stats().returnable_bytes < full.live_bytes, full.live_bytes - ebbmalloc.stats().live_bytes > 9_000_000)
"""


def pythons() -> list[str]:
    """This interpreter, and those of EBB_TEST_PYTHONS (paths with colons between), whose objects come from malloc."""
    named = os.environ.get("EBB_TEST_PYTHONS", "").split(":")
    return [BASE, *(python for python in named if python and not python.endswith("t"))]


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if "__pycache__" not in path.parts}


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.wheel = one("*ARCH.whl")
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)

    def run_bare(self, *command, **more) -> str:
        done = subprocess.run(command, env=BARE | more, cwd=self.folder, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def environment(self, python: str) -> Path:
        """An empty one, with the pip that came with this Python."""
        venv = self.folder / f"venv-{len(list(self.folder.iterdir()))}"
        self.run_bare(python, "-m", "venv", venv)
        return venv

    def pip(self, venv: Path, *arguments) -> None:
        self.run_bare(venv / "bin/python", "-m", "pip", "--disable-pip-version-check", *arguments)

    def test_installed_it_works_and_uninstalled_nothing_is_left(self):
        for python in pythons():
            with self.subTest(python):
                if subprocess.run([python, "-c", "import ensurepip, venv"], env=BARE, capture_output=True).returncode:
                    self.used_from_a_folder(python)
                    continue
                venv = self.environment(python)
                before = files(venv)
                self.pip(venv, "install", "--no-index", "--no-deps", self.wheel)
                self.used(venv)
                self.pip(venv, "uninstall", "--yes", "ebbmalloc")
                self.assertEqual(files(venv), before)

    def used(self, venv: Path) -> None:
        python, version = venv / "bin/python", self.wheel.name.split("-")[1]
        self.assertIn(f"ebb {version}", self.run_bare(venv / "bin/ebb", "--version"))
        self.assertIn(f"ebb {version}", self.run_bare(python, "-m", "ebbmalloc", "--version"))
        library = self.run_bare(python, "-c", "import ebbmalloc; print(ebbmalloc.library())").strip()
        self.assertTrue(library.startswith(str(venv)) and Path(library).is_file(), library)
        self.called(python, library)

    def used_from_a_folder(self, python: str) -> None:
        """A Python without pip, as Debian's packages alone are."""
        self.called(python, str(self.unpacked() / "ebbmalloc/libebbmalloc.so"), PYTHONPATH=str(self.installed_in_a_folder()))

    def called(self, python, library: str, **more) -> None:
        """stats() and trim(), on the library that `ebb run` takes and on the wheel's."""
        said = self.run_bare(python, "-m", "ebbmalloc", "run", "--", python, "-c", CALL, **more)
        self.assertEqual(set(said.split()), {"True"}, said)
        said = self.run_bare(python, "-c", CALL, LD_PRELOAD=library, **more)
        self.assertEqual(set(said.split()), {"True"}, said)

    def installed_in_a_folder(self) -> Path:
        target = self.folder / "target"
        if not target.exists():
            self.run_bare(BASE, "-m", "pip", "install", "--no-index", "--no-deps", "--target", target, self.wheel)
        return target

    def test_without_ebbmalloc_the_error_says_how_to_start(self):
        for call in ("stats", "trim"):
            done = subprocess.run([sys.executable, "-c", f"import ebbmalloc; ebbmalloc.{call}()"], capture_output=True, text=True,
                                  env=BARE | {"PYTHONPATH": str(self.unpacked())})
            self.assertEqual(done.returncode, 1)
            self.assertIn("NotLoaded: this process does not run on ebbmalloc: start it with", done.stderr)

    def test_a_folder_of_its_own(self):
        """pip install --target writes a RECORD that does not fit the places of its files."""
        said = self.run_bare(BASE, "-m", "ebbmalloc", "--version", PYTHONPATH=str(self.installed_in_a_folder()))
        self.assertTrue(said.startswith("ebb "), said)

    def test_uv(self):
        if not shutil.which("uvx"):
            self.skipTest("uv is not installed")
        command = ["uvx", "--offline", "--no-config", "--from", self.wheel, "ebb", "why", str(os.getpid())]
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"UV_CACHE_DIR": str(self.folder / "cache")})
        self.assertIn(done.returncode, VERDICTS, done.stderr)
        self.assertIn("python", done.stdout)

    def test_the_tag_is_true(self):
        """A program that needs a libc's symbols may not be called a musl program."""
        import wheel  # packages/wheel.py

        machine = os.uname().machine
        every = f"manylinux_2_17_{machine}.musllinux_1_2_{machine}"
        needs_glibc = wheel.platforms([Path("/bin/sh").resolve()])
        self.assertRegex(needs_glibc, r"^manylinux_2_\d+_\w+$")
        library = self.unpacked() / "ebbmalloc/libebbmalloc.so"
        self.assertEqual(wheel.platforms([library]), every)
        self.assertEqual(wheel.platforms([library, Path("/bin/sh").resolve()]), needs_glibc)
        program = next(self.unpacked().glob("*.data/scripts/ebb"))
        self.assertTrue(self.wheel.stem.endswith("-py3-none-" + wheel.platforms([library, program])), self.wheel)

    def unpacked(self) -> Path:
        folder = self.folder / "unpacked"
        if not folder.exists():
            with ZipFile(self.wheel) as archive:
                archive.extractall(folder)
        return folder
