"""The image: read by others' tools, entered, and copied from in a build."""

from contextlib import closing
from hashlib import sha256
import json
import os
from pathlib import Path
import platform
import shutil
import socket
import subprocess
import tarfile
import tempfile
import time
import unittest
from urllib.error import URLError
from urllib.request import urlopen

from made import BARE, DIST, VERDICTS, layout, long, one
from roots import Root, may_change_root

NAMES = {"x86_64": "amd64", "aarch64": "arm64"}
OWN = NAMES[platform.machine()]
LIBRARY = "usr/local/lib/libebbmalloc.so"
# In the image and in the archive.
FILES = {
    "usr/bin/ebb": "bin/ebb",
    LIBRARY: "lib/libebbmalloc.so",
    "usr/local/include/ebbmalloc.h": "include/ebbmalloc.h",
    "usr/share/doc/ebbmalloc/LICENSES.txt": "share/doc/ebbmalloc/LICENSES.txt",
}


def run(*command, may_end: range = range(1), **more) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, **more)
    if done.returncode not in may_end:
        raise AssertionError(f"{command}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def version() -> str:
    return one("*-ARCH-linux.tar.gz").name.split("-")[1]


def digest() -> str:
    return one("*-image.digest").read_text().strip()


def archives() -> dict[str, Path]:
    """By the name of the architecture in images."""
    return {name: path for arch, name in NAMES.items() for path in DIST.glob(f"*-{arch}-linux.tar.gz")}


def add_programs(root: Path, *programs: str) -> None:
    """Programs of this machine and their libraries, at their places."""
    for program in programs:
        for path in [program, *(word for word in run("ldd", program).split() if word.startswith("/"))]:
            target = root / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)


class Image(unittest.TestCase):
    """The image, and a folder for what is made of it."""

    @classmethod
    def setUpClass(cls):
        cls.archive = one("*-image.tar")
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)

    def skopeo(self, *command, arch: str = OWN) -> str:
        return run("skopeo", "--override-os", "linux", "--override-arch", arch, *command)

    def root(self, arch: str) -> Path:
        """The image's files, as skopeo chooses it from the index and umoci unpacks it."""
        image, bundle = self.folder / f"image-{arch}", self.folder / f"bundle-{arch}"
        if not bundle.exists():
            self.skopeo("copy", "--quiet", f"oci-archive:{self.archive}", f"oci:{image}:it", arch=arch)
            run("umoci", "unpack", "--image", f"{image}:it", bundle)
        return bundle / "rootfs"


class Layout(Image):
    """What the specification asks for."""

    def test_the_digest_is_that_of_the_index(self):
        _, index = layout(self.archive)
        [whole] = index["manifests"]
        self.assertEqual(whole["digest"], digest())
        self.assertEqual(whole["annotations"]["org.opencontainers.image.ref.name"], version())

    def test_each_architecture_has_an_image_with_labels_and_entry_point(self):
        blobs, index = layout(self.archive)
        whole = blobs[index["manifests"][0]["digest"]]
        self.assertEqual([image["platform"]["architecture"] for image in whole["manifests"]], list(archives()))
        for image in whole["manifests"]:
            config = blobs[blobs[image["digest"]]["config"]["digest"]]
            self.assertEqual(config["config"]["Entrypoint"], ["/usr/bin/ebb"])
            self.assertEqual(config["config"]["Labels"], whole["annotations"])
        labels = {name.removeprefix("org.opencontainers.image."): value for name, value in whole["annotations"].items()}
        self.assertEqual(set(labels), {"created", "description", "licenses", "revision", "source", "title", "version"})
        self.assertEqual((labels["licenses"], labels["version"]), ("MIT OR Apache-2.0", version()))
        self.assertRegex(labels["revision"], "^[0-9a-f]{7,40}")


@long("skopeo", "umoci")
class Tools(Image):
    def test_skopeo_inspects_it(self):
        for arch in archives():
            said = json.loads(self.skopeo("inspect", f"oci-archive:{self.archive}", arch=arch))
            self.assertEqual((said["Architecture"], said["Os"]), (arch, "linux"))
            self.assertEqual(said["Labels"]["org.opencontainers.image.version"], version())
        raw = self.skopeo("inspect", "--raw", f"oci-archive:{self.archive}")
        self.assertEqual(f"sha256:{sha256(raw.encode()).hexdigest()}", digest())

    def test_a_copy_keeps_every_digest(self):
        to = self.folder / "copy"
        self.skopeo("copy", "--quiet", "--all", "--preserve-digests", f"oci-archive:{self.archive}", f"oci:{to}:it")
        blobs, _ = layout(self.archive)
        self.assertEqual(set(blobs), {f"sha256:{path.name}" for path in to.glob("blobs/sha256/*")})

    def test_the_files_are_those_of_the_archive(self):
        for arch, path in archives().items():
            root = self.root(arch)
            with tarfile.open(path) as archive:
                [folder] = {name.partition("/")[0] for name in archive.getnames()}
                for ours, theirs in FILES.items():
                    self.assertEqual((root / ours).read_bytes(), archive.extractfile(f"{folder}/{theirs}").read(), ours)
            modes = {file: (root / file).stat().st_mode & 0o777 for file in ("usr", "usr/bin/ebb", LIBRARY)}
            self.assertEqual(list(modes.values()), [0o755, 0o755, 0o644])

    def test_entered(self):
        """With one program added, which has libraries."""
        if os.geteuid() != 0 or not may_change_root():
            self.skipTest("only root, with the right to mount, can change the root")
        root = self.root(OWN)
        add_programs(root, "/bin/cat")
        inside = Root(root)
        self.assertIn(f"ebb {version()}", inside.run("/usr/bin/ebb", "--version").stdout)
        self.assertIn(f"/{LIBRARY}", inside.run("/usr/bin/ebb", "run", "--", "/bin/cat", "/proc/self/maps").stdout)


PROGRAM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <ebbmalloc.h>
int main(void) {
    __typeof__(mallocx) *take = (__typeof__(mallocx) *)dlsym(RTLD_DEFAULT, "mallocx");
    return !take || !take(100, MALLOCX_ZERO);
}
"""


@long("skopeo", "umoci", "qemu-user", "gcc-aarch64-linux-gnu")
class Emulated(Image):
    def test_the_image_for_aarch64(self):
        if OWN == "arm64" or "arm64" not in archives():
            self.skipTest("dist/ has no image for aarch64, or this machine is one")
        root = self.root("arm64")
        # The emulator keeps a word for each page of address space: a limit keeps the reservations small.
        emulate = ["prlimit", "--as=34359738368", "qemu-aarch64"]
        ebb = [*emulate, root / "usr/bin/ebb"]
        self.assertIn(f"ebb {version()}", run(*ebb, "--version", env=BARE))
        run(*ebb, "library", "--out", self.folder, env=BARE)
        self.assertEqual((self.folder / "libebbmalloc.so").read_bytes(), (root / LIBRARY).read_bytes())
        # This kernel starts no program for aarch64, so that `ebb run` ends there; the loader takes the library.
        source, program = self.folder / "it.c", self.folder / "it"
        source.write_text(PROGRAM)
        run("aarch64-linux-gnu-gcc", "-I", root / "usr/local/include", "-o", program, source)
        run(*emulate, "-L", "/usr/aarch64-linux-gnu", "-E", f"LD_PRELOAD={root / LIBRARY}", program, env=BARE)


def only_root(to: str) -> None:
    if os.geteuid() != 0 or not may_change_root():
        raise unittest.SkipTest(f"only root, with the right to mount, can {to} without user namespaces")


@long("skopeo", "umoci", "buildah", "docker-registry")
class Built(Image):
    """A registry on this machine, and builds that copy from the image in it by the digest of the index."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        only_root("build")
        with closing(socket.create_server(("127.0.0.1", 0))) as server:
            cls.registry = f"127.0.0.1:{server.getsockname()[1]}"
        config = cls.folder / "registry.yml"
        config.write_text(f"""version: 0.1
log: {{level: error}}
storage: {{filesystem: {{rootdirectory: {cls.folder}/registry}}}}
http: {{addr: "{cls.registry}"}}
""")
        served = subprocess.Popen(["docker-registry", "serve", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        cls.addClassCleanup(served.wait)
        cls.addClassCleanup(served.kill)
        for _ in range(200):
            try:
                urlopen(f"http://{cls.registry}/v2/").close()
                break
            except URLError:
                time.sleep(0.05)
        run("skopeo", "copy", "--quiet", "--all", "--preserve-digests", "--dest-tls-verify=false",
            f"oci-archive:{cls.archive}", f"docker://{cls.registry}/ebb:{version()}")
        cls.image = f"{cls.registry}/ebb@{digest()}"

    def buildah(self, command: str, *arguments) -> str:
        storage = ["--storage-driver", "vfs", "--root", self.folder / "storage", "--runroot", self.folder / "state"]
        # Its home has no settings; TMPDIR is where it unpacks.
        environment = BARE | {"HOME": str(self.folder), "TMPDIR": str(self.folder), "PATH": os.environ["PATH"]}
        return run("buildah", *storage, command, *arguments, env=environment)

    def test_what_ebb_fix_writes_builds_and_runs(self):
        base, context = self.folder / "base", self.folder / "context"
        add_programs(base, "/bin/cat")
        shutil.copytree(base, context / "base")
        (context / "base.Dockerfile").write_text("FROM scratch\nCOPY base /\n")
        self.buildah("bud", "--isolation", "chroot", "-t", "localhost/base", "-f", context / "base.Dockerfile", context)
        dockerfile = context / "Dockerfile"
        dockerfile.write_text('FROM localhost/base\nCMD ["/bin/cat", "/proc/self/maps"]\n')
        fix = [self.root(OWN) / "usr/bin/ebb", "fix", "--channel", "release", "--library-image", self.image, "--write", "Dockerfile"]
        run(*fix, cwd=context, env=BARE | {"XDG_STATE_HOME": str(self.folder)})
        self.assertIn(f"COPY --from={self.image} /{LIBRARY} /usr/local/lib/", dockerfile.read_text())
        self.buildah("bud", "--isolation", "chroot", "--tls-verify=false", "-t", "localhost/it", context)
        container = self.buildah("from", "--pull-never", "localhost/it").strip()
        maps = self.buildah("run", "--isolation", "chroot", container, "--", "/bin/cat", "/proc/self/maps")
        self.assertIn(f"/{LIBRARY}", maps)

    def test_each_architecture_gets_its_own_library(self):
        context = self.folder / "each"
        context.mkdir()
        (context / "Dockerfile").write_text(f"FROM scratch\nCOPY --from={self.image} /{LIBRARY} /\n")
        for arch in archives():
            self.buildah("bud", "--arch", arch, "--tls-verify=false", "-t", f"localhost/{arch}", context)
            to = self.folder / f"built-{arch}.tar"
            self.buildah("push", "--quiet", f"localhost/{arch}", f"oci-archive:{to}:it")
            blobs, _ = layout(to)
            layers = [blob for blob in blobs.values() if isinstance(blob, bytes)]
            unpacked = subprocess.run(["tar", "-xzO"], input=layers[-1], capture_output=True, check=True).stdout
            self.assertEqual(unpacked, (self.root(arch) / LIBRARY).read_bytes(), arch)


@long("podman", "runc")
class Run(Image):
    """As containers, of root and without a network. The limits are those that root without CAP_SYS_RESOURCE may set."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        only_root("run containers")
        cls.podman("load", "--quiet", "--input", cls.archive)

    @classmethod
    def podman(cls, command: str, *arguments, may_end: range = range(1)) -> str:
        storage = ["--storage-driver", "vfs", "--root", cls.folder / "storage", "--runroot", cls.folder / "state"]
        environment = BARE | {"HOME": str(cls.folder), "TMPDIR": str(cls.folder), "PATH": os.environ["PATH"]}
        return run("podman", *storage, "--runtime", "runc", command, *arguments, env=environment, may_end=may_end)

    def ebb(self, *arguments, options: tuple = (), may_end: range = range(1)) -> str:
        limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000"]
        image = f"ghcr.io/ebbmalloc/ebb:{version()}"
        return self.podman("run", "--rm", "--network", "none", *limits, *options, image, *arguments, may_end=may_end)

    def test_the_entry_point_is_ebb(self):
        self.assertIn(f"ebb {version()}", self.ebb("--version"))

    def test_why_of_a_process_of_the_host(self):
        service = subprocess.Popen(["sleep", "60"])
        self.addCleanup(service.wait)
        self.addCleanup(service.kill)
        options = ("--pid", "host", "--cap-add", "SYS_PTRACE")
        self.assertIn("glibc", self.ebb("why", "--json", str(service.pid), options=options, may_end=VERDICTS))
