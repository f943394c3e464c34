"""The wheel, installed, upgraded and removed by pip and uv in empty environments."""

import base64
from collections.abc import Callable
import csv
from hashlib import sha256
import io
import os
from pathlib import Path
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
from zipfile import ZipFile, ZipInfo

from made import BARE, DIST, ROOT, VERDICTS, one, skip
from roots import PYTHON, Root, may_change_root

UV = ROOT / "packages/.venv/bin/uv"
# Of the release before, and not of this one.
GONE = "ebbmalloc/of_the_release_before.py"
PIP = ("-m", "pip", "--disable-pip-version-check")
OFFLINE = ("--offline", "--no-config", "--quiet")

CALL = """
import ebbmalloc
held = [bytearray(100_000) for _ in range(100)]
full = ebbmalloc.stats()
held.clear()
print(full.live_bytes > 10_000_000, full.mapped_bytes >= full.live_bytes, full.metadata_bytes > 0, type(ebbmalloc.trim()) is bool)
print(ebbmalloc.stats().returnable_bytes < full.live_bytes, full.live_bytes - ebbmalloc.stats().live_bytes > 9_000_000)
"""


# That of CPython 3.9.2 does not know the tags of musl.
PIP_OF_IT = """
import importlib.util, platform
if not importlib.util.find_spec("ensurepip"):
    print("no pip")
elif platform.libc_ver()[0] != "glibc":
    import ensurepip
    tuple(map(int, ensurepip.version().split(".")[:2])) < (21, 2) and print("no pip for musl")
"""


def pythons() -> list[str]:
    """This interpreter, and those of EBB_TEST_PYTHONS (paths with colons between), whose objects come from malloc."""
    named = os.environ.get("EBB_TEST_PYTHONS", "").split(":")
    return [str(PYTHON), *(python for python in named if python and not python.endswith("t"))]


def files(folder: Path) -> set[str]:
    """Without the interpreter's caches and uv's lock."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not {"__pycache__", ".lock"} & {*path.parts}}


def release_before(wheel: Path, folder: Path) -> Path:
    """A wheel of version 0.0.9 with the files of `wheel` and one more."""
    version = wheel.name.split("-")[1]
    older = folder / wheel.name.replace(version, "0.0.9", 1)
    with ZipFile(wheel) as source, ZipFile(older, "w") as target:
        record = io.StringIO()
        rows = csv.writer(record, lineterminator="\n")

        def add(name: str, data: bytes, attributes: int) -> None:
            entry = ZipInfo(name)
            entry.external_attr = attributes
            target.writestr(entry, data)
            digest = base64.urlsafe_b64encode(sha256(data).digest()).rstrip(b"=").decode()
            rows.writerow([name, f"sha256={digest}", len(data)])

        for entry in source.infolist():
            name = entry.filename.replace(f"ebbmalloc-{version}.", "ebbmalloc-0.0.9.")
            data = source.read(entry)
            if name.endswith("/METADATA"):
                data = data.replace(f"\nVersion: {version}\n".encode(), b"\nVersion: 0.0.9\n")
            if not name.endswith("/RECORD"):
                add(name, data, entry.external_attr)
        add(GONE, b"", 0o644 << 16)
        name = "ebbmalloc-0.0.9.dist-info/RECORD"
        rows.writerow([name, "", ""])
        target.writestr(name, record.getvalue())
    return older


class Place:
    """Where an interpreter runs: this machine, or the root that it was unpacked into; nothing of the checkout is on the path."""

    def __init__(self, test: "Wheel", python: str, root: Root | None = None):
        self.test, self.python, self.root = test, python, root
        folder = tempfile.TemporaryDirectory(dir=root.folder / "tmp" if root else None)
        test.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        for wheel in (test.wheel, test.older):
            shutil.copy(wheel, self.folder)
        self.wheel, self.older = self.seen(self.folder / test.wheel.name), self.seen(self.folder / test.older.name)
        shutil.copy(UV, self.folder)
        self.uv = self.seen(self.folder / "uv")

    def seen(self, path: Path) -> Path:
        return Path("/", path.relative_to(self.root.folder)) if self.root else path

    def run(self, *command, **more: str) -> str:
        folder = self.seen(self.folder)
        more = {"HOME": str(folder), "UV_CACHE_DIR": str(folder / "cache"), "UV_PYTHON_DOWNLOADS": "never"} | more
        if self.root:
            done = self.root.run(*map(str, command), **BARE | more)
        else:
            done = subprocess.run(command, env=BARE | more, cwd=folder, capture_output=True, text=True, timeout=120)
        self.test.assertIn(done.returncode, VERDICTS if "why" in command else [0], done.stdout + done.stderr)
        return done.stdout


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.wheel = one("*ARCH.whl")
        if not UV.exists():
            raise skip("no uv: ci/python-env.sh packages", cls)
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls.older = release_before(cls.wheel, cls.folder)

    def places(self) -> list[Place]:
        """One for each interpreter that can make environments."""
        found = []
        for python in pythons():
            # Next to a script of ci/pythons.sh is the root that its interpreter was unpacked into.
            root = Path(python).parent
            if not (root / "usr/bin" / Path(python).name).exists() or root == Path("/"):
                found.append(Place(self, python))
            elif may_change_root():
                found.append(Place(self, f"/usr/bin/{Path(python).name}", Root(root)))
        return found

    def test_installed_upgraded_and_removed_by_pip(self):
        for place in self.places():
            with self.subTest(place.python):
                if "no pip" in place.run(place.python, "-c", PIP_OF_IT):
                    continue
                venv = place.folder / "of-pip"
                python = place.seen(venv / "bin/python")
                place.run(place.python, "-m", "venv", place.seen(venv))
                self.cycle(place, venv, lambda wheel: [python, *PIP, "install", "--no-index", "--no-deps", "--upgrade", wheel],
                           [python, *PIP, "uninstall", "--yes", "ebbmalloc"])

    def test_installed_upgraded_and_removed_by_uv(self):
        for place in self.places():
            with self.subTest(place.python):
                venv = place.folder / "of-uv"
                pip = [place.uv, "pip", *OFFLINE]
                place.run(place.uv, "venv", *OFFLINE, "--python", place.python, place.seen(venv))
                self.cycle(place, venv, lambda wheel: [*pip, "install", "--python", place.seen(venv), wheel],
                           [*pip, "uninstall", "--python", place.seen(venv), "ebbmalloc"])

    def cycle(self, place: Place, venv: Path, install: Callable[[Path], list], remove: list) -> None:
        before = files(venv)
        place.run(*install(place.older))
        self.assertEqual(len(list(venv.glob(f"lib/*/site-packages/{GONE}"))), 1)
        place.run(*install(place.wheel))
        self.assertEqual(list(venv.glob(f"lib/*/site-packages/{GONE}")), [])
        self.used(place, place.seen(venv))
        place.run(*remove)
        self.assertEqual(files(venv), before)

    def used(self, place: Place, venv: Path) -> None:
        """The command, the module, and stats() and trim() on the library that `ebb run` takes and on the wheel's."""
        python, version = venv / "bin/python", self.wheel.name.split("-")[1]
        self.assertIn(f"ebb {version}", place.run(venv / "bin/ebb", "--version"))
        self.assertIn(f"ebb {version}", place.run(python, "-m", "ebbmalloc", "--version"))
        library = place.run(python, "-c", "import ebbmalloc; print(ebbmalloc.library())").strip()
        self.assertTrue(library.startswith(str(venv)), library)
        for said in (place.run(python, "-m", "ebbmalloc", "run", "--", python, "-c", CALL),
                     place.run(python, "-c", CALL, LD_PRELOAD=library)):
            self.assertEqual(set(said.split()), {"True"}, said)

    def test_uvx_and_uv_tool(self):
        for place in self.places():
            with self.subTest(place.python):
                tool = [place.uv, "tool"]
                options = [*OFFLINE, "--python", place.python]
                said = place.run(*tool, "run", *options, "--from", place.wheel, "ebb", "why", str(os.getpid()))
                self.assertTrue(said)
                places = {"UV_TOOL_DIR": str(place.seen(place.folder / "tools")), "UV_TOOL_BIN_DIR": str(place.seen(place.folder / "bin"))}
                place.run(*tool, "install", *options, place.wheel, **places)
                self.assertIn("ebb ", place.run(place.seen(place.folder / "bin/ebb"), "--version"))
                place.run(*tool, "uninstall", "ebbmalloc", **places)
                self.assertEqual(files(place.folder / "bin"), set())
                self.assertEqual([name for name in files(place.folder / "tools") if "ebbmalloc" in name], [])

    def test_without_ebbmalloc_the_error_says_how_to_start(self):
        for call in ("stats", "trim"):
            done = subprocess.run([sys.executable, "-c", f"import ebbmalloc; ebbmalloc.{call}()"], capture_output=True, text=True,
                                  env=BARE | {"PYTHONPATH": str(self.unpacked())})
            self.assertEqual(done.returncode, 1)
            self.assertIn("NotLoaded: this process does not run on ebbmalloc: start it with", done.stderr)

    def test_a_folder_of_its_own(self):
        """pip install --target writes a RECORD that does not fit the places of its files."""
        place = Place(self, str(PYTHON))
        target = place.folder / "target"
        place.run(PYTHON, *PIP, "install", "--no-index", "--no-deps", "--target", target, self.wheel)
        said = place.run(PYTHON, "-m", "ebbmalloc", "--version", PYTHONPATH=str(target))
        self.assertTrue(said.startswith("ebb "), said)

    def test_pip_takes_it_for_musl_and_for_the_oldest_and_the_newest_python(self):
        place = Place(self, str(PYTHON))
        machine = os.uname().machine
        for minor in (8, 14):
            for platform in (f"musllinux_1_2_{machine}", f"manylinux_2_17_{machine}"):
                place.run(PYTHON, *PIP, "install", "--no-index", "--no-deps", "--only-binary=:all:", "--dry-run", "--platform", platform,
                          "--implementation", "cp", "--python-version", f"3.{minor}", "--target", place.folder / "none", self.wheel)

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


class Line(unittest.TestCase):
    """The line that `ebb fix --channel release` writes for pip does what it says."""

    def test_pip_installs_ebb_which_writes_the_library(self):
        archive, wheel = one("*-ARCH-linux.tar.gz"), one("*ARCH.whl")
        if subprocess.run([PYTHON, "-c", "import ensurepip, venv"], env=BARE, capture_output=True).returncode:
            self.skipTest("not installed: python3-venv")
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            with tarfile.open(archive) as tar:
                program, library = (tar.extractfile(f"{tar.getnames()[0]}/{path}").read() for path in ("bin/ebb", "lib/libebbmalloc.so"))
            (folder / "ebb").write_bytes(program)
            (folder / "ebb").chmod(0o755)
            (folder / "Dockerfile").write_text('FROM python:3-slim\nRUN pip install -q flask\nCMD ["flask"]\n')
            command = [folder / "ebb", "fix", "--channel", "release", "--write", "Dockerfile"]
            subprocess.run(command, cwd=folder, env=BARE | {"XDG_STATE_HOME": f"{name}/state"}, check=True, capture_output=True)
            [line] = re.findall(r"^RUN (.* ebb .*)$", (folder / "Dockerfile").read_text(), re.MULTILINE)
            self.assertEqual(line, f"pip install -q ebbmalloc=={wheel.name.split('-')[1]} && ebb library --out /usr/local/lib")
            # Of dist/, not of the index; into a folder of the test.
            subprocess.run([PYTHON, "-m", "venv", folder / "venv"], env=BARE, check=True)
            environment = BARE | {"PATH": f"{folder}/venv/bin:/usr/bin:/bin", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(DIST.resolve())}
            done = subprocess.run(["sh", "-c", line.replace("/usr/local/lib", f"{folder}/lib")], env=environment, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual((folder / "lib/libebbmalloc.so").read_bytes(), library)
