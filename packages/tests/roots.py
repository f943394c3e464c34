"""A root of its own: /proc, /dev/null, what is unpacked or copied into it, and nothing else of this machine."""

from collections.abc import Sequence
import os
from pathlib import Path
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from made import skip

# The mount namespace ends with the command. The root comes first, then folders to be seen in it, options and place of each
# file system in memory, and what is executed.
ENTER = """
root=$1 && shift && mount -t proc proc "$root/proc" && mount --bind /dev/null "$root/dev/null" || exit 99
while [ "$1" != --memory ]; do mount --bind "$1" "$root$1" && shift || exit 99; done
while shift && [ "$1" != -- ]; do mount -t tmpfs -o "$1" tmpfs "$root$2" && shift || exit 99; done
shift && exec "$@"
"""
# With the PATH that the program in the root gets, it may not be found.
CHROOT = shutil.which("chroot", path=f"{os.environ['PATH']}:/usr/sbin:/sbin") or "chroot"
PYTHON = Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}")


def may_change_root() -> bool:
    if os.geteuid() != 0:
        return False
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(Root(Path(folder)).command("/none"), capture_output=True, text=True)
        return "chroot: failed to run command" in done.stderr


class Root:
    def __init__(self, folder: Path):
        self.folder = folder
        self.seen: list[Path] = []
        for name in ("proc", "dev"):
            (folder / name).mkdir(exist_ok=True)
        (folder / "dev/null").touch()

    def unpack(self, archive: Path, below: str = "") -> None:
        """An archive of a release, into /usr/local or, as in an image, into the root."""
        (self.folder / below).mkdir(parents=True, exist_ok=True)
        subprocess.run(["tar", "-xzf", archive, "-C", self.folder / below, "--strip-components", "1"], check=True)

    def place(self, path: Path) -> None:
        """A file of this machine, at its place."""
        target = self.folder / path.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)

    def copy(self, *programs: Path | str) -> None:
        """The programs and their libraries, at their places."""
        used = subprocess.run(["ldd", *programs], check=True, capture_output=True, text=True).stdout
        for path in {*map(str, programs), *re.findall(r"(/\S+) \(0x", used)}:
            self.place(Path(path))

    def copy_python(self) -> str:
        """This interpreter with its modules; /tmp for what is started with it."""
        library = Path(sys.base_prefix, "lib", PYTHON.name)
        self.copy(PYTHON, *library.glob("lib-dynload/*.so"))
        self.seen.append(library)
        (self.folder / "tmp").mkdir()
        (self.folder / "tmp").chmod(0o1777)
        return str(PYTHON)

    def command(self, *command: str, user: int = 0, memory: Sequence[str] = ()) -> list:
        """`command` in the root, as this user; `memory`: options of a file system and its place, one after the other."""
        start = ["unshare", "--mount", "sh", "-c", ENTER, "enter", self.folder, *self.seen, "--memory", *memory, "--"]
        return [*start, CHROOT, f"--userspec={user}:{user}", self.folder, *command]

    def run(self, *command: str, user: int = 0, memory: Sequence[str] = (), **environment: str) -> subprocess.CompletedProcess:
        return subprocess.run(self.command(*command, user=user, memory=memory), env={"PATH": os.environ["PATH"]} | environment,
                              capture_output=True, text=True, timeout=120)


class RootTest(unittest.TestCase):
    """Tests in one root per class, which `fill` fills."""

    @classmethod
    def setUpClass(cls):
        if not may_change_root():
            raise skip("only root, with the right to mount, can change the root", cls)
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        Path(folder.name).chmod(0o755)
        cls.root = Root(Path(folder.name))
        cls.fill()

    @classmethod
    def fill(cls) -> None:
        raise NotImplementedError

    def output(self, *command: str, **more) -> str:
        done = self.root.run(*command, **more)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout


def started(test: unittest.TestCase, command: list, name: str) -> int:
    """The id of the program `name` that `command` becomes."""
    service = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    test.addCleanup(service.wait)
    test.addCleanup(service.kill)
    for _ in range(200):
        if Path(f"/proc/{service.pid}/comm").read_text() == f"{name}\n":
            return service.pid
        time.sleep(0.05)
    raise AssertionError(f"{name} did not start")
