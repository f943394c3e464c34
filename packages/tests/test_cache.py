"""The library that `ebb` carries, where the cache is wrong, full, or somebody else's: one clear line, nothing half-written."""

from pathlib import Path
import shutil
import subprocess
import tarfile

from made import one
from roots import CHROOT, RootTest

MAPS = "/bin/cat /proc/self/maps"
MACHINE = 18  # where an ELF file names its machine, in two bytes
OTHERS = {"x86_64": b"\xb7\0", "aarch64": b"\x3e\0"}


class Cache(RootTest):
    """A root with nothing but `ebb` and programs to run; a home for each test."""

    @classmethod
    def fill(cls):
        archive = one("*-ARCH-linux.tar.gz")
        with tarfile.open(archive) as entries:
            program = next(entry for entry in entries if entry.name.endswith("/bin/ebb"))
            (cls.root.folder / "ebb").write_bytes(entries.extractfile(program).read())
        (cls.root.folder / "ebb").chmod(0o755)
        cls.version, cls.arch = archive.name.split("-")[1:3]
        cls.root.copy("/bin/cat", "/bin/sh", "/bin/true")

    def home(self, user: int = 0) -> Path:
        home = self.root.folder / "home"
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        shutil.chown(home, user, user)
        return home

    def ebb(self, arguments: str, user: int = 0, memory: list[str] = [], **environment: str) -> subprocess.CompletedProcess:
        return self.root.run("/ebb", *arguments.split(), user=user, memory=memory, **environment)

    def held_in_memory(self, done: subprocess.CompletedProcess, why: str) -> None:
        """It ran on the library in memory, and one line says why."""
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("/memfd:libebbmalloc.so", done.stdout)
        self.assertRegex(done.stderr, rf"^ebb: note: ebbmalloc [^\n]*in memory [^\n]*, because [^\n]*{why}[^\n\"]*\n$")

    def cached(self, done: subprocess.CompletedProcess) -> None:
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"/home/\.cache/ebb/[^/]+/libebbmalloc\.so")

    def files(self) -> list[Path]:
        return sorted(path for path in (self.root.folder / "home").rglob("*") if not path.is_dir())

    def test_no_home(self):
        self.held_in_memory(self.ebb(f"run {MAPS}"), "neither XDG_CACHE_HOME nor HOME")
        self.held_in_memory(self.ebb(f"run {MAPS}", HOME="/no/such"), "/no/such: No such file")
        done = self.ebb("library", HOME="/no/such")
        self.assertEqual((done.returncode, done.stdout), (74, ""))
        self.assertRegex(done.stderr, r"^ebb: /no/such: No such file[^\n]*--out DIR\n$")

    def test_a_full_or_read_only_disk(self):
        home = self.home()
        for options, why in (("ro,mode=700", "Read-only file system"), ("size=64k,mode=700", "No space left"),
                             ("nr_inodes=2,mode=700", "No space left")):
            memory = [options, "/home"]
            with self.subTest(options):
                self.held_in_memory(self.ebb(f"run {MAPS}", memory=memory, HOME="/home"), why)
                done = self.root.run("/bin/sh", "-c", "/ebb library; echo $?; set -- /home/.cache/ebb/*/* /home/.cache/ebb/*/.[!.]*;"
                                     " for file; do [ ! -e $file ] || echo left: $file; done", memory=memory, HOME="/home")
                self.assertEqual(done.stdout, "74\n")
                self.assertRegex(done.stderr, rf"^ebb: [^\n]*{why}[^\n]*--out DIR\n$")
        self.assertEqual(list(home.iterdir()), [])

    def test_without_proc(self):
        self.home()
        line = [CHROOT, self.root.folder, "/ebb", "run", "/bin/cat", "/home/note"]
        (self.root.folder / "home/note").write_text("written")
        done = subprocess.run(line, env={"HOME": "/home"}, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, "written"), done.stderr)

    def test_no_cache_and_no_memory(self):
        """One descriptor more than a program has."""
        done = self.root.run("/bin/sh", "-c", "ulimit -n 4; exec /ebb run /bin/true")
        self.assertEqual((done.returncode, done.stdout), (74, ""), done.stderr)
        self.assertRegex(done.stderr, r"^ebb: [^\n]*cannot be placed: [^\n]*HOME[^\n]*in memory: Too many open files[^\n]*\n$")

    def test_a_library_of_another_architecture_or_version_in_the_cache(self):
        home = self.home()
        self.cached(self.ebb(f"run {MAPS}", HOME="/home"))
        [library] = self.files()
        right = library.read_bytes()
        other = bytearray(right)
        other[MACHINE:MACHINE + 2] = OTHERS[self.arch]
        older = right.replace(self.version.encode(), b"0.0.9")
        self.assertNotEqual(older, right)
        for name, bytes_ in (("architecture", other), ("version", older), ("half", right[:1000]), ("none", b"")):
            with self.subTest(name):
                library.write_bytes(bytes_)
                self.cached(self.ebb(f"run {MAPS}", HOME="/home"))
                self.assertEqual(library.read_bytes(), right)
                self.assertEqual(self.files(), [library])
        # That of another release stays: its `ebb` may run.
        kept = home / ".cache/ebb/0.0.9-0123456789abcdef/libebbmalloc.so"
        kept.parent.mkdir(mode=0o700)
        kept.write_bytes(older)
        done = self.ebb(f"run {MAPS}", HOME="/home")
        self.cached(done)
        self.assertNotIn("0.0.9", done.stdout)
        self.assertEqual(kept.read_bytes(), older)

    def test_an_installed_library_of_another_architecture_is_passed_over(self):
        self.home()
        self.cached(self.ebb(f"run {MAPS}", HOME="/home"))
        other = bytearray(self.files()[0].read_bytes())
        other[MACHINE:MACHINE + 2] = OTHERS[self.arch]
        installed = self.root.folder / "usr/local/lib/libebbmalloc.so"
        installed.parent.mkdir(parents=True, exist_ok=True)
        self.addCleanup(installed.unlink)
        installed.write_bytes(other)
        self.cached(self.ebb(f"run {MAPS}", HOME="/home"))
        done = self.ebb(f"run {MAPS}", HOME="/home", EBB_LIB="/usr/local/lib/libebbmalloc.so")
        self.assertEqual((done.returncode, done.stdout), (31, ""))
        self.assertRegex(done.stderr, r"^ebb: /usr/local/lib/libebbmalloc.so is built for [^\n]*, the program for [^\n]*\n$")

    def test_two_users_of_one_cache(self):
        first, second = 1001, 1002
        for name, environment, folder in (
            ("one home, as sudo leaves it", {"HOME": "/home"}, ".cache"),
            ("one XDG_CACHE_HOME", {"HOME": "/no/such", "XDG_CACHE_HOME": "/home"}, ""),
        ):
            with self.subTest(name):
                home = self.home(first)
                home.chmod(0o755)
                done = self.ebb(f"run {MAPS}", first, **environment)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertRegex(done.stdout, rf"/home/{folder}/?ebb/[^/]+/libebbmalloc\.so")
                before = [(path, path.stat().st_mtime_ns, path.stat().st_uid) for path in self.files()]
                for user in (second, 0):
                    self.held_in_memory(self.ebb(f"run {MAPS}", user, **environment), "belongs to another user")
                    refused = self.ebb("library", user, **environment)
                    self.assertEqual((refused.returncode, refused.stdout), (74, ""))
                self.assertEqual([(path, path.stat().st_mtime_ns, path.stat().st_uid) for path in self.files()], before)
                self.assertEqual({path.stat().st_uid for path in home.rglob("*")}, {first})

    def test_a_cache_that_all_may_write(self):
        """As /tmp is: who comes first could plant a library."""
        self.home().chmod(0o1777)
        for user in (1001, 1002):
            done = self.ebb(f"run {MAPS}", user, XDG_CACHE_HOME="/home")
            self.held_in_memory(done, "belongs to another user")
        self.held_in_memory(self.ebb(f"run {MAPS}", XDG_CACHE_HOME="/home"), "can be written by other users")
        self.assertEqual(self.files(), [])

    def test_many_at_once(self):
        """They find it, or write the same one."""
        self.home(1001)
        command = self.root.command("/ebb", "run", *MAPS.split(), user=1001)
        runs = [subprocess.Popen(command, env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/home"}, text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) for _ in range(8)]
        for run in runs:
            self.assertIn("/libebbmalloc.so", run.communicate(timeout=60)[0])
        self.assertEqual(len(self.files()), 1)
