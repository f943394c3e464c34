"""The archive in a root that has nothing else."""

from hashlib import sha256
import json
import os
from pathlib import Path
import re
import shutil
import subprocess
import tarfile
import tempfile
import unittest


from made import DIST, ROOT, VERDICTS, needs, one

# A mount namespace of its own: /proc of the root ends with the command.
ENTER = 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"'


def may_change_root() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "proc").mkdir()
        command = ["unshare", "--mount", "sh", "-c", 'mount -t proc proc "$0/proc" && chroot "$0" /none', folder]
        return "chroot: failed to run command" in subprocess.run(command, capture_output=True, text=True).stderr


class Files(unittest.TestCase):
    def names(self) -> dict[str, tarfile.TarInfo]:
        with tarfile.open(one("*-ARCH-linux.tar.gz")) as archive:
            return {member.name.partition("/")[2]: member for member in archive}

    def test_everything_that_an_installation_needs(self):
        names = self.names()
        wanted = """bin/ebb lib/libebbmalloc.so lib/libebbmalloc.a lib/pkgconfig/ebbmalloc.pc include/ebbmalloc.h
            share/man/man1/ebb.1 share/man/man1/ebb-why.1 share/bash-completion/completions/ebb
            share/zsh/site-functions/_ebb share/fish/vendor_completions.d/ebb.fish share/doc/ebbmalloc/README.md
            share/doc/ebbmalloc/LICENSE-MIT share/doc/ebbmalloc/LICENSE-APACHE share/doc/ebbmalloc/LICENSES.txt""".split()
        self.assertEqual([name for name in wanted if name not in names], [])
        self.assertEqual({name for name, entry in names.items() if entry.isfile() and entry.mode & 0o100},
                         {"bin/ebb", "lib/libebbmalloc.so"})

    def test_entries_are_sorted_and_of_one_time_and_owner(self):
        entries = self.names()
        self.assertEqual(list(entries), sorted(entries, key=lambda name: name.split("/")))
        self.assertEqual({(one.uid, one.gid, one.uname, one.gname) for one in entries.values()}, {(0, 0, "", "")})
        self.assertEqual(len({entry.mtime for entry in entries.values()}), 1)

    def test_sums_are_those_of_all_files(self):
        one("SHA256SUMS")
        listed = {name: digest for digest, name in map(str.split, (DIST / "SHA256SUMS").read_text().splitlines())}
        files = {path.name: sha256(path.read_bytes()).hexdigest() for path in DIST.iterdir() if path.name != "SHA256SUMS"}
        self.assertEqual(listed, files)

    def test_nothing_names_the_build_machine(self):
        home = str(Path.home()).encode()
        for pattern in ("*-ARCH-linux.tar.gz", "*-ARCH-linux-debug.tar.gz"):
            with tarfile.open(one(pattern)) as archive:
                for member in filter(tarfile.TarInfo.isfile, archive):
                    data = archive.extractfile(member).read()
                    for path in (str(ROOT).encode() + b"/", home + b"/.cargo", home + b"/.rustup"):
                        self.assertFalse(path in data, f"{member.name} has {path}")

    def test_each_component_has_a_licence_and_its_text(self):
        bill = json.loads(one("*-ARCH-linux.cdx.json").read_text())
        self.assertEqual((bill["bomFormat"], bill["specVersion"]), ("CycloneDX", "1.6"))
        self.assertGreater(len(bill["components"]), 80)
        with tarfile.open(one("*-ARCH-linux.tar.gz")) as archive:
            member = next(entry for entry in archive if entry.name.endswith("/LICENSES.txt"))
            text = archive.extractfile(member).read().decode()
        owners = " ".join(re.findall(r"^=+\nOf (.*)$", text, re.MULTILINE))
        for part in bill["components"]:
            name = f"{part['name']} {part['version']}"
            self.assertTrue(part["licenses"], name)
            self.assertIn(name, owners)
        self.assertEqual(bill["metadata"]["component"]["hashes"][0]["content"],
                         sha256(one("*-ARCH-linux.tar.gz").read_bytes()).hexdigest())


PROGRAM = """
#include <ebbmalloc.h>
int main(void) {
    void *block = mallocx(100, MALLOCX_ZERO);
    struct mallinfo2 info = mallinfo2();
    return block && info.uordblks >= 100 && info.uordblks < 1000000 ? 0 : 1;
}
"""


@needs("build-essential", "pkg-config")
class Linked(unittest.TestCase):
    """A C program built with nothing but the unpacked archive."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        subprocess.run(["tar", "-xzf", one("*-ARCH-linux.tar.gz"), "-C", self.folder], check=True)
        [self.prefix] = self.folder.iterdir()
        (self.folder / "program.c").write_text(PROGRAM)

    def asked(self, *options: str) -> list[str]:
        environment = {"PATH": "/usr/bin:/bin", "PKG_CONFIG_PATH": str(self.prefix / "lib/pkgconfig")}
        done = subprocess.run(["pkg-config", *options, "ebbmalloc"], env=environment, check=True, capture_output=True, text=True)
        return done.stdout.split()

    def build(self, *options: str) -> Path:
        program = self.folder / "program"
        subprocess.run(["cc", "-o", program, self.folder / "program.c", *options], check=True)
        return program

    def test_with_the_shared_library(self):
        program = self.build(*self.asked("--cflags", "--libs"))
        subprocess.run([program], env={"LD_LIBRARY_PATH": str(self.prefix / "lib")}, check=True)

    def test_with_the_archive(self):
        program = self.build(*self.asked("--cflags"), str(self.prefix / "lib/libebbmalloc.a"), "-pthread")
        subprocess.run([program], env={}, check=True)

    def test_the_version(self):
        self.assertIn(f"-{self.asked('--modversion')[0]}-", self.prefix.name)


class EmptyRoot(unittest.TestCase):
    """A root with the archive, /proc, and one program with its libraries, as a service in a small image."""

    @classmethod
    def setUpClass(cls):
        archive = one("*-ARCH-linux.tar.gz")
        if os.geteuid() != 0 or not may_change_root():
            raise unittest.SkipTest("only root, with the right to mount, can change the root")
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.root = Path(cls.folder.name)
        subprocess.run(["tar", "-xzf", archive, "-C", cls.root, "--strip-components", "1"], check=True)
        (cls.root / "proc").mkdir()
        cls.copy("/bin/sleep")
        cls.copy("/bin/cat")
        musl = Path(f"/lib/ld-musl-{os.uname().machine}.so.1")
        if musl.exists():
            cls.place(musl)

    @classmethod
    def copy(cls, program: str) -> None:
        """The program and its libraries, at their places."""
        used = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
        for path in [program, *re.findall(r"(/\S+)", used)]:
            cls.place(Path(path))

    @classmethod
    def place(cls, path: Path) -> None:
        target = cls.root / path.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)

    def enter(self, *command: str) -> list:
        return ["unshare", "--mount", "sh", "-c", ENTER, str(self.root), *command]

    def output(self, *command: str) -> str:
        done = subprocess.run(self.enter(*command), env={}, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_version(self):
        version = one("*-ARCH-linux.tar.gz").name.split("-")[1]
        self.assertIn(f"ebb {version}", self.output("/bin/ebb", "--version"))

    def test_the_root_has_no_shell(self):
        """Nothing of this machine helps."""
        self.assertFalse((self.root / "bin/sh").exists())
        self.assertFalse((self.root / "tmp").exists())

    def test_why_of_a_process(self):
        service = subprocess.Popen(self.enter("/bin/sleep", "60"), env={})
        self.addCleanup(service.wait)
        self.addCleanup(service.kill)
        # Until it is the program, which has the id of the shell before.
        for _ in range(200):
            if Path(f"/proc/{service.pid}/comm").read_text() == "sleep\n":
                break
            subprocess.run(["sleep", "0.05"])
        done = subprocess.run(self.enter("/bin/ebb", "why", "--json", str(service.pid)), env={}, capture_output=True, text=True)
        self.assertIn(done.returncode, VERDICTS, done.stderr)
        self.assertIn("sleep", done.stdout)
        self.assertIn("glibc", done.stdout)

    def test_a_musl_program(self):
        if not shutil.which("musl-gcc"):
            self.skipTest("not installed: musl-tools")
        source = self.root / "maps.c"
        source.write_text('#include <stdio.h>\nint main(void) { FILE *f = fopen("/proc/self/maps", "r"); int c;'
                          " while ((c = getc(f)) != EOF) putchar(c); return 0; }")
        subprocess.run(["musl-gcc", "-o", self.root / "maps", source], check=True)
        self.assertIn("ebbmalloc", self.output("/bin/ebb", "run", "--", "/maps"))

    def test_run_preloads_the_library_into_a_program(self):
        maps = self.output("/bin/ebb", "run", "--", "/bin/cat", "/proc/self/maps")
        self.assertIn("ebbmalloc", maps)
