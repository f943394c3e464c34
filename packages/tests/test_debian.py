"""The .deb packages: lintian's judgement, and their life in minimal installations of Debian 11, 12 and 13, on both architectures."""

import gzip
from hashlib import md5
import os
from pathlib import Path
import platform
import shutil
import subprocess
import tarfile
import tempfile
import unittest

from made import DIST, VERDICTS, needs, one
import debian

import components  # of packages/, as packer and system
import packer
import system

SUITES = ("bullseye", "bookworm", "trixie")
NAMES = ("ebb", "libebbmalloc0", "libebbmalloc-dev", "ebbmalloc-jemalloc-compat")
OLDER = "0.0.9"


def packages(arch: str, folder: Path = DIST) -> list[Path]:
    """In the order of NAMES; skips the test if they were not made."""
    found = [path for name in NAMES for path in folder.glob(f"{name}_*_{debian.DEBIAN[arch]}.deb")]
    if not found:
        raise unittest.SkipTest(f"{folder} has no packages for {debian.DEBIAN[arch]}: make dist")
    assert [path.name.partition("_")[0] for path in found] == list(NAMES), found
    return found


def archs() -> list[str]:
    one("SHA256SUMS")
    found = [arch for arch in debian.DEBIAN if list(DIST.glob(f"ebb_*_{debian.DEBIAN[arch]}.deb"))]
    if not found:
        raise unittest.SkipTest(f"{DIST} has no .deb: make dist")
    return found


def older(arch: str, folder: Path) -> list[Path]:
    """Packages of an older version, by the same script, with a man page that the new ones lack."""
    with tarfile.open(one(f"*-{arch}-linux.tar.gz")) as archive:
        archive.extractall(folder, filter="data")
    [tree] = folder.glob("ebbmalloc-*")
    (tree / "share/man/man1/ebb-older.1").write_text(".TH EBB-OLDER 1\n.SH NAME\nebb-older \\- is gone\n")
    subprocess.run(["dpkg-deb", "-x", packages(arch)[3], folder / "compat"], check=True)
    [compat] = (folder / "compat").rglob(system.JEMALLOC)
    out = folder / "older"
    out.mkdir()
    system.build(tree, compat, arch, out, 1_700_000_000, OLDER)
    return packages(arch, out)


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def unpacked(self, arch: str) -> Path:
        for package in packages(arch):
            subprocess.run(["dpkg-deb", "-x", package, self.folder / arch], check=True)
        return self.folder / arch

    def test_the_control_files(self):
        for arch in archs():
            for package in packages(arch):
                control = subprocess.run(["dpkg-deb", "--info", package], check=True, capture_output=True, text=True).stdout
                self.assertIn(f" Version: {components.version()}-1\n", control)
                self.assertIn(f" Architecture: {debian.DEBIAN[arch]}\n", control)
                shlibs = subprocess.run(["dpkg-deb", "--info", package, "shlibs"], capture_output=True, text=True)
                self.assertEqual(shlibs.returncode == 0, package.name.startswith("libebbmalloc0"))
        self.assertEqual(subprocess.run(["dpkg-deb", "--info", packages(archs()[0])[1], "shlibs"], capture_output=True,
                                        text=True).stdout, f"libebbmalloc 0 libebbmalloc0 (>= {components.version()})\n")

    def test_sums_are_those_of_all_files(self):
        for arch in archs():
            for package in packages(arch):
                sums = subprocess.run(["dpkg-deb", "--info", package, "md5sums"], check=True, capture_output=True, text=True).stdout
                tree = self.folder / package.stem
                subprocess.run(["dpkg-deb", "-x", package, tree], check=True)
                files = {f"./{path.relative_to(tree)}": md5(path.read_bytes()).hexdigest()
                         for path in tree.rglob("*") if path.is_file() and not path.is_symlink()}
                self.assertEqual({path: digest for digest, path in map(str.split, sums.splitlines())}, files)

    def test_the_sonames_are_those_of_the_files(self):
        for arch in archs():
            libraries = self.unpacked(arch) / f"usr/lib/{arch}-linux-gnu"
            for file in (libraries / system.SONAME, libraries / "ebbmalloc" / system.JEMALLOC):
                said = subprocess.run(["readelf", "--dynamic", "--wide", file], check=True, capture_output=True, text=True).stdout
                self.assertIn(f"[{file.name}]", said)

    @unittest.skipUnless(shutil.which("cc") and shutil.which("pkg-config"), "not installed: build-essential, pkg-config")
    def test_a_program_is_linked_by_pkg_config(self):
        root = self.unpacked(platform.machine())
        libraries = root / f"usr/lib/{platform.machine()}-linux-gnu"
        (self.folder / "program.c").write_text("#include <ebbmalloc.h>\nint main(void) { return !mallocx(100, MALLOCX_ZERO); }\n")
        environment = {"PATH": "/usr/bin:/bin", "PKG_CONFIG_SYSROOT_DIR": str(root),
                       "PKG_CONFIG_PATH": str(libraries / "pkgconfig"), "PKG_CONFIG_ALLOW_SYSTEM_LIBS": "1"}
        options = subprocess.run(["pkg-config", "--cflags", "--libs", "ebbmalloc"], env=environment, check=True,
                                 capture_output=True, text=True).stdout.split()
        program = self.folder / "program"
        subprocess.run(["cc", f"-I{root}/usr/include", "-o", program, self.folder / "program.c", *options], check=True)
        subprocess.run([program], env={"LD_LIBRARY_PATH": str(libraries)}, check=True)
        self.assertIn(f"[{system.SONAME}]", subprocess.run(["readelf", "--dynamic", "--wide", program], check=True,
                                                           capture_output=True, text=True).stdout)

    def test_libraries_of_both_architectures_share_their_documents(self):
        """Which `Multi-Arch: same` demands."""
        if len(archs()) < 2:
            self.skipTest("dist/ has one architecture")
        documents = []
        for arch in archs():
            tree = self.folder / f"documents-{arch}"
            for package in packages(arch)[1:]:
                subprocess.run(["dpkg-deb", "-x", package, tree], check=True)
            documents.append({str(path.relative_to(tree)): path.read_bytes() for path in tree.rglob("*")
                              if path.is_file() and "usr/lib/" not in str(path)})
        one_tree, other = documents
        same = {name for name in one_tree if one_tree[name] == other.get(name)}
        self.assertEqual(set(one_tree) ^ set(other) | set(one_tree) - same, set())


@needs("lintian")
class Lintian(unittest.TestCase):
    def test_no_error(self):
        one("SHA256SUMS")
        for arch in archs():
            with self.subTest(arch):
                done = subprocess.run(["lintian", "--allow-root", "--fail-on", "error", *packages(arch)],
                                      capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class Life:
    """Of the packages in one root: installed in an older version, upgraded, used, removed, purged."""

    suite = arch = ""

    @classmethod
    def setUpClass(cls):
        one("SHA256SUMS")
        if os.environ.get("EBB_LONG") != "1":
            raise unittest.SkipTest("EBB_LONG=1 makes roots of Debian")
        if os.geteuid() != 0 or not debian.can_emulate(cls.arch):
            raise unittest.SkipTest(f"only root, with user namespaces and qemu-user-static, can run Debian's {debian.DEBIAN[cls.arch]}")
        cls.new = packages(cls.arch)
        if not packer.can_build():
            raise unittest.SkipTest("Go 1.25 or later, which builds nfpm for the older packages, is missing")
        debian.CACHE.mkdir(parents=True, exist_ok=True)
        folder = tempfile.TemporaryDirectory(dir=debian.CACHE.parent)
        cls.addClassCleanup(folder.cleanup)
        cls.root = Path(folder.name) / "root"
        cls.older = older(cls.arch, Path(folder.name))
        debian.make(cls.suite, cls.arch, cls.root)
        cls.emulated = cls.arch != platform.machine()
        cls.libraries = f"/usr/lib/{cls.arch}-linux-gnu"

    def output(self, *command: str) -> str:
        return debian.output(self.root, self.arch, *command)

    def install(self, files: list[Path]) -> None:
        with tempfile.TemporaryDirectory(dir=self.root / "tmp") as folder:
            Path(folder).chmod(0o755)
            copies = [Path(shutil.copy(file, folder)) for file in files]
            self.output("apt-get", "install", "--yes", "--no-install-recommends",
                        *(f"/{copy.relative_to(self.root)}" for copy in copies))

    def versions(self) -> dict[str, str]:
        said = self.output("dpkg-query", "-W", "-f=${Package} ${Version}\n", *NAMES)
        return dict(line.split() for line in said.splitlines())

    def test_installed_upgraded_used_removed_and_purged(self):
        before = debian.files(self.root)
        self.install(self.older)
        self.assertEqual(self.versions(), dict.fromkeys(NAMES, f"{OLDER}-1"))
        gone = self.root / "usr/share/man/man1/ebb-older.1.gz"
        # Roots of some suites leave out manuals.
        had_manuals = gone.exists()
        self.install(self.new)
        self.assertEqual(self.versions(), dict.fromkeys(NAMES, f"{components.version()}-1"))
        self.assertFalse(gone.exists())
        if had_manuals:
            self.assertIn(b"ebb why", gzip.decompress((self.root / "usr/share/man/man1/ebb-why.1.gz").read_bytes()))
        self.assertEqual(self.output("dpkg", "--verify", *NAMES), "")
        self.assertEqual(self.output("dpkg", "--audit"), "")
        self.use_the_tool()
        self.use_the_library_of_the_package()
        self.use_it_as_jemalloc()
        self.output("apt-get", "remove", "--yes", *NAMES)
        self.output("dpkg", "--purge", *NAMES)
        self.assertEqual(debian.files(self.root) - before, set())
        self.assertEqual(before - debian.files(self.root), set())

    def use_the_tool(self) -> None:
        self.assertIn(f"ebb {components.version()}", self.output("ebb", "--version"))
        maps = self.output("ebb", "run", "--", "cat", "/proc/self/maps")
        self.assertIn(f"{self.libraries}/libebbmalloc.so", maps)
        self.assertIn("trim", self.output("bash", "-c", "source /usr/share/bash-completion/completions/ebb; complete -p ebb; "
                                          "COMP_WORDS=(ebb tri) COMP_CWORD=1; _ebb ebb tri ebb; echo ${COMPREPLY[@]}"))
        # The emulator's own memory is what can be read from outside.
        if self.emulated:
            return
        said = self.output("ebb", "run", "--verify", "--verify-for", "1s", "--", "sleep", "2")
        self.assertRegex(said, rf"ebbmalloc \({self.libraries}/libebbmalloc\.so(\.0)?\) is in charge")
        # In one namespace of processes: `why` sees what the root's shell started.
        said = self.output("sh", "-c", "sleep 60 & sleep 1; ebb why --json $!; echo status $?; kill $!")
        self.assertIn(int(said.rpartition("status ")[2]), VERDICTS, said)
        self.assertIn("sleep", said)
        self.assertIn("glibc", said)

    def use_the_library_of_the_package(self) -> None:
        maps = self.output("env", f"LD_PRELOAD={system.SONAME}", "cat", "/proc/self/maps")
        self.assertIn(f"{self.libraries}/{system.SONAME}", maps)
        self.assertIn(system.SONAME, self.output("ldconfig", "-p"))

    def use_it_as_jemalloc(self) -> None:
        """Only where the user switches to it."""
        folder, by_name = f"{self.libraries}/ebbmalloc", ("env", f"LD_PRELOAD={system.JEMALLOC}")
        self.assertIn("cannot be preloaded", self.output(*by_name, "cat", "/proc/self/maps"))
        self.assertIn(f"{folder}/{system.JEMALLOC}", self.output(*by_name, f"LD_LIBRARY_PATH={folder}", "cat", "/proc/self/maps"))
        line = Path(self.root, "etc/ld.so.conf.d/00-ebbmalloc.conf")
        line.write_text(f"{folder}\n")
        self.output("ldconfig")
        self.assertIn(f"{folder}/{system.JEMALLOC}", self.output(*by_name, "cat", "/proc/self/maps"))
        line.unlink()
        self.output("ldconfig")


for suite in SUITES:
    for arch in debian.DEBIAN:
        name = f"{suite.capitalize()}{debian.DEBIAN[arch].capitalize()}"
        members = {"suite": suite, "arch": arch, "__module__": __name__, "__qualname__": name}
        globals()[name] = needs("debootstrap")(type(name, (Life, unittest.TestCase), members))
