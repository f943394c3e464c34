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

import debian
from made import DIST, QUICK, ROOT, VERDICTS, long, needs, one
from roots import RootTest, started

MAPS = """
#include <stdio.h>
int main(void) {
    FILE *maps = fopen("/proc/self/maps", "r");
    for (int c; (c = getc(maps)) != EOF;) putchar(c);
    return 0;
}
"""


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

    @unittest.skipIf(QUICK, "a quick build is larger")
    def test_program_and_library_are_small(self):
        one("SHA256SUMS")
        for path in DIST.glob("ebbmalloc-*-linux.tar.gz"):
            with tarfile.open(path) as archive:
                sizes = {member.name.partition("/")[2]: member.size for member in archive}
            for name, most in (("bin/ebb", 12_000_000), ("lib/libebbmalloc.so", 800_000)):
                self.assertLessEqual(sizes[name], most, f"{path.name}: {name}")

    @unittest.skipIf(QUICK, "a quick build names it")
    def test_nothing_names_the_build_machine(self):
        home = str(Path.home()).encode()
        for pattern in ("*-ARCH-linux.tar.gz", "*-ARCH-linux-debug.tar.gz"):
            with tarfile.open(one(pattern)) as archive:
                for member in filter(tarfile.TarInfo.isfile, archive):
                    data = archive.extractfile(member).read()
                    for path in (str(ROOT).encode() + b"/", home + b"/.cargo", home + b"/.rustup"):
                        self.assertFalse(path in data, f"{member.name} has {path}")

    @unittest.skipIf(QUICK, "a quick build has no debug files")
    def test_each_program_has_a_debug_file(self):
        for path in DIST.glob("ebbmalloc-*-linux.tar.gz"):
            with tempfile.TemporaryDirectory() as folder:
                for archive in (path, path.with_name(path.name.replace("-linux", "-linux-debug"))):
                    subprocess.run(["tar", "-xzf", archive, "-C", folder, "--strip-components", "1"], check=True)
                for file in ("bin/ebb", "lib/libebbmalloc.so"):
                    said = [subprocess.run(["readelf", "--notes", Path(folder) / name], check=True, capture_output=True, text=True).stdout
                            for name in (file, f"{file}.debug")]
                    program, debug = (re.search("Build ID: (.*)", notes)[1] for notes in said)
                    self.assertEqual(program, debug, f"{path.name}: {file}")
                self.assertTrue((Path(folder) / "lib/ebbmalloc/libjemalloc.so.2.debug").exists())

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


class EmptyRoot(RootTest):
    """A root with the archive and programs with their libraries, as in a small image."""

    @classmethod
    def fill(cls):
        cls.root.unpack(one("*-ARCH-linux.tar.gz"))
        cls.root.copy("/bin/sleep", "/bin/cat")
        musl = Path(f"/lib/ld-musl-{os.uname().machine}.so.1")
        if musl.exists():
            cls.root.place(musl)

    def test_version(self):
        version = one("*-ARCH-linux.tar.gz").name.split("-")[1]
        self.assertIn(f"ebb {version}", self.output("/bin/ebb", "--version"))

    def test_the_root_has_no_shell(self):
        """Nothing of this machine helps."""
        self.assertFalse((self.root.folder / "bin/sh").exists())
        self.assertFalse((self.root.folder / "tmp").exists())

    def test_why_of_a_process(self):
        service = started(self, self.root.command("/bin/sleep", "60"), "sleep")
        done = self.root.run("/bin/ebb", "why", "--json", str(service))
        self.assertIn(done.returncode, VERDICTS, done.stderr)
        self.assertIn("sleep", done.stdout)
        self.assertIn("glibc", done.stdout)

    @needs("musl-tools")
    def test_a_musl_program(self):
        source = self.root.folder / "maps.c"
        source.write_text(MAPS)
        subprocess.run(["musl-gcc", "-o", self.root.folder / "maps", source], check=True)
        self.assertIn("ebbmalloc", self.output("/bin/ebb", "run", "--", "/maps"))

    def test_run_preloads_the_library_into_a_program(self):
        maps = self.output("/bin/ebb", "run", "--", "/bin/cat", "/proc/self/maps")
        self.assertIn("ebbmalloc", maps)

    def test_a_trial_without_a_folder_for_temporary_files_says_which_it_wants(self):
        done = self.root.run("/bin/ebb", "compare", "--burst", "http://127.0.0.1:1/", "--", "/bin/sleep", "60")
        self.assertEqual(done.returncode, 74, done.stderr)
        self.assertRegex(done.stderr, r"^ebb: no folder for temporary files: .*TMPDIR\n$")


@long("qemu-user-static", "gcc-aarch64-linux-gnu")
class EmptyRootForAarch64(unittest.TestCase):
    """The program alone, emulated, with a program and the C library of that architecture."""

    def test_version_and_run_with_and_without_a_home(self):
        archives = sorted(DIST.glob("*-aarch64-linux.tar.gz"))
        if os.uname().machine == "aarch64" or not archives:
            self.skipTest("dist/ has no archive for aarch64, or this machine is one")
        if os.geteuid() != 0 or not debian.can_emulate("aarch64"):
            self.skipTest("only root, with user namespaces, can run programs for aarch64")
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)
        for name in ("proc", "bin", "lib"):
            (folder / name).mkdir()
        with tarfile.open(archives[0]) as archive:
            program = next(entry for entry in archive if entry.name.endswith("/bin/ebb"))
            (folder / "ebb").write_bytes(archive.extractfile(program).read())
        (folder / "ebb").chmod(0o755)
        (folder / "maps.c").write_text(MAPS)
        subprocess.run(["aarch64-linux-gnu-gcc", "-o", folder / "maps", folder / "maps.c"], check=True)
        for library in ("ld-linux-aarch64.so.1", "libc.so.6"):
            shutil.copy(f"/usr/aarch64-linux-gnu/lib/{library}", folder / "lib")
        version = archives[0].name.split("-")[1]
        self.assertIn(f"ebb {version}", debian.output(folder, "aarch64", "/ebb", "--version"))
        self.assertIn("/memfd:libebbmalloc.so", debian.output(folder, "aarch64", "/ebb", "run", "--", "/maps"))
        (folder / "root").mkdir()
        self.assertRegex(debian.output(folder, "aarch64", "/ebb", "run", "--", "/maps"), r"/root/\.cache/ebb/[^/]+/libebbmalloc\.so")


SERVICE = """
import http.server, sys

class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        held = [bytes(2000) for _ in range(5000)]
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *words):
        pass

http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Answer).serve_forever()
"""


class Service(RootTest):
    """A service in Python, and the archive in /usr/local next to it."""

    @classmethod
    def fill(cls):
        cls.root.unpack(one("*-ARCH-linux.tar.gz"), "usr/local")
        cls.python = cls.root.copy_python()
        (cls.root.folder / "service.py").write_text(SERVICE)

    def test_a_trial_by_bursts(self):
        done = self.root.run("/usr/local/bin/ebb", "compare", "--burst", "http://127.0.0.1:{port}/ -c 4 -n 40", "--json",
                             "-n", "1", "--rest", "1s", "--cycles", "1", "--variants", "glibc,ebbmalloc", "--",
                             self.python, "/service.py", "{port}")
        self.assertIn(done.returncode, VERDICTS, done.stderr)
        report = json.loads(done.stdout)
        libraries = {variant["name"]: variant["library"] for variant in report["variants"]}
        self.assertEqual(libraries, {"glibc": None, "ebbmalloc": "/usr/local/lib/libebbmalloc.so"})
        kinds = [run["outcome"]["kind"] for variant in report["variants"] for run in variant["runs"]]
        self.assertEqual(kinds, ["complete"] * 2)


class Installed(RootTest):
    """Installation, upgrade and removal below /usr/local."""

    @classmethod
    def fill(cls):
        cls.root.copy("/bin/sleep")
        (cls.root.folder / "usr/local/etc").mkdir(parents=True)
        (cls.root.folder / "usr/local/etc/of-another").touch()

    def installed(self) -> dict[str, bytes]:
        below = self.root.folder / "usr/local"
        return {str(path.relative_to(below)): path.read_bytes() for path in below.rglob("*") if path.is_file()}

    def test_upgrade_while_it_is_used_and_removal(self):
        archive = one("*-ARCH-linux.tar.gz")
        before = self.installed()
        # An older release, as far as tar sees it.
        self.root.unpack(archive, "usr/local")
        service = started(self, self.root.command("/usr/local/bin/ebb", "run", "--", "/bin/sleep", "60"), "sleep")
        self.root.unpack(archive, "usr/local")

        done = self.root.run("/usr/local/bin/ebb", "check", "--allocator", "ebbmalloc", str(service))
        self.assertEqual(done.returncode, 0, "runs on the library before: " + done.stdout + done.stderr)
        maps = self.output("/usr/local/bin/ebb", "run", "--verify", "--", "/bin/sleep", "1")
        self.assertEqual(maps, "")

        with tarfile.open(archive) as entries:
            for entry in filter(tarfile.TarInfo.isfile, entries):
                (self.root.folder / "usr/local" / entry.name.partition("/")[2]).unlink()
        self.assertEqual(self.installed(), before)
