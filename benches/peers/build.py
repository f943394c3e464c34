#!/usr/bin/env python3
"""Builds the newest peers from the C sources in their crates, as objects to preload.

    benches/peers/build.py FOLDER [PEER]...

Each peer is built the way its own authors build a shared object, optimised, without
debugging aids. Beside libNAME.so stands NAME.json: the crate, the allocator's version and
the command. A peer that cannot be built leaves NAME.failed with the reason, which the
tables then show; the exit status is 1 only if none could be built.

Needs cargo, cmake, a C and a C++ compiler, make (Debian: build-essential cmake).
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Callable

HERE = Path(__file__).resolve().parent
CC = os.environ.get("CC", "cc")
CXX = os.environ.get("CXX", "c++")
JOBS = str(min(2, len(os.sched_getaffinity(0))))


@dataclass(frozen=True)
class Peer:
    """`recipe` takes the crate's folder, a scratch folder and a log; it gives the object."""

    name: str
    crate: str
    recipe: Callable[[Path, Path, "Log"], Path]
    version: Callable[[Path, str], str]


class Log:
    """Runs the commands of one recipe and keeps what they said."""

    def __init__(self, path: Path):
        self.path, self.commands = path, []

    def run(self, *command: str, within: Path) -> None:
        self.commands.append(" ".join(os.path.basename(c) if c.startswith("/") else c for c in command))
        with self.path.open("a") as log:
            done = subprocess.run(command, cwd=within, stdout=log, stderr=subprocess.STDOUT)
        if done.returncode != 0:
            raise RuntimeError(f"{os.path.basename(command[0])} ended with {done.returncode}")


def copied(source: Path, scratch: Path) -> Path:
    """A writable copy: the registry's sources stay as they are."""
    target = scratch / "source"
    shutil.copytree(source, target)
    for path in [target, *target.rglob("*")]:
        path.chmod(path.stat().st_mode | 0o200)
    return target


def by_cmake(source: Path, scratch: Path, log: Log, target: str, *options: str) -> Path:
    build = scratch / "build"
    log.run("cmake", "-S", str(source), "-B", str(build), "-DCMAKE_BUILD_TYPE=Release", *options, within=scratch)
    log.run("cmake", "--build", str(build), "--target", target, "-j", JOBS, within=scratch)
    return build


def jemalloc(crate: Path, scratch: Path, log: Log) -> Path:
    source = copied(crate / "jemalloc", scratch)
    shutil.copy(crate / "configure" / "configure", source / "configure")
    # The sources carry no version: the crate's folder does, after its own.
    version = jemalloc_version(crate, crate.name)
    log.run("sh", "configure", "--disable-doc", f"--with-version={version}", within=source)
    log.run("make", "-j", JOBS, "build_lib_shared", within=source)
    return source / "lib/libjemalloc.so.2"


def mimalloc(folder: str) -> Callable[[Path, Path, Log], Path]:
    """Its CMakeLists is in the crate without its parts: the same flags, by hand."""

    def recipe(crate: Path, scratch: Path, log: Log) -> Path:
        target = scratch / "libmimalloc.so"
        defines = ["NDEBUG", "MI_BUILD_RELEASE", "MI_CMAKE_BUILD_TYPE=release", "MI_SHARED_LIB", "MI_SHARED_LIB_EXPORT"]
        defines += ["MI_MALLOC_OVERRIDE"]
        flags = ["-O3", "-std=gnu11", "-fPIC", "-shared", "-fvisibility=hidden", "-ftls-model=initial-exec"]
        flags += ["-fno-builtin-malloc", "-Iinclude", *(f"-D{d}" for d in defines)]
        command = [CC, *flags, "src/static.c", "-o", str(target), "-pthread", "-lrt", "-latomic"]
        log.run(*command, within=crate / "c_src" / folder)
        return target

    return recipe


def snmalloc(crate: Path, scratch: Path, log: Log) -> Path:
    build = by_cmake(crate / "upstream", scratch, log, "snmallocshim", "-DSNMALLOC_BUILD_TESTING=OFF")
    return build / "libsnmallocshim.so"


def rpmalloc(crate: Path, scratch: Path, log: Log) -> Path:
    source = crate / "rpmalloc/rpmalloc"
    target = scratch / "librpmallocwrap.so"
    defines = ["-DRPMALLOC_COMPILE=1", "-D_GNU_SOURCE=1", "-DNDEBUG=1", "-DENABLE_PRELOAD=1", "-DENABLE_OVERRIDE=1"]
    flags = ["-std=c11", "-O3", "-fomit-frame-pointer", "-fno-math-errno", "-funroll-loops", "-fPIC", "-shared"]
    flags += ["-fvisibility=default", "-w", "-fno-builtin"]
    command = [CC, *flags, *defines, "rpmalloc.c", "-o", str(target), "-lpthread", "-ldl"]
    log.run(*command, within=source)
    return target


def tcmalloc(crate: Path, scratch: Path, log: Log) -> Path:
    """Its own build is Bazel's. The crate's build.rs lists the sources; its bridge gives way to malloc itself."""
    sources = re.findall(r'"(c_src/[^"]+\.(?:cc|S))"', (crate / "build.rs").read_text())
    sources = [s for s in sources if not s.endswith("_bridge.cc")] + ["c_src/tcmalloc/tcmalloc/tcmalloc.cc"]
    flags = ["-O2", "-std=c++17", "-fPIC", "-DNDEBUG", "-DTCMALLOC_INTERNAL_8K_PAGES", "-ftls-model=initial-exec"]
    flags += ["-fno-builtin-malloc", "-w", "-Ic_src/abseil-cpp", "-Ic_src/tcmalloc"]
    objects = [str(scratch / f"{number}.o") for number in range(len(sources))]

    def compiled(pair: tuple) -> None:
        log.run(CXX, *flags, "-c", pair[0], "-o", pair[1], within=crate)

    with ThreadPool(int(JOBS)) as pool:
        pool.map(compiled, zip(sources, objects, strict=True))
    target = scratch / "libtcmalloc.so"
    log.run(CXX, "-shared", *objects, "-o", str(target), "-pthread", "-lrt", within=crate)
    return target


def jemalloc_version(_crate: Path, text: str) -> str:
    """The crate's version carries jemalloc's own after the plus."""
    return text.partition("+")[2] or text


def mimalloc_version(folder: str) -> Callable[[Path, str], str]:
    def version(crate: Path, _text: str) -> str:
        header = (crate / "c_src" / folder / "include/mimalloc.h").read_text()
        number = int(re.search(r"define MI_MALLOC_VERSION\s+(\d+)", header).group(1))
        return f"{number // 10000}.{number // 100 % 100}.{number % 100}"

    return version


def rpmalloc_version(crate: Path, text: str) -> str:
    """The newest heading of its own change log; the crate names the commit."""
    log = (crate / "rpmalloc/CHANGELOG").read_text()
    return f"after {re.search(r'^[0-9.]+', log).group(0)}, commit {text.partition('+')[2]}"


PEERS = [
    Peer("jemalloc-new", "tikv-jemalloc-sys", jemalloc, jemalloc_version),
    Peer("mimalloc-2", "libmimalloc-sys2", mimalloc("mimalloc"), mimalloc_version("mimalloc")),
    Peer("mimalloc-3", "libmimalloc-sys2", mimalloc("mimalloc3"), mimalloc_version("mimalloc3")),
    Peer("tcmalloc-google", "libtcmalloc-sys", tcmalloc, lambda _crate, text: f"of crate {text}"),
    Peer("snmalloc", "snmalloc-sys", snmalloc, lambda _crate, text: f"of crate {text}"),
    Peer("rpmalloc", "rpmalloc-sys", rpmalloc, rpmalloc_version),
]


def crates() -> dict:
    """Name -> (folder of the sources, version), as the lock file has them; fetched if need be."""
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--manifest-path", str(HERE / "Cargo.toml")]
    packages = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["packages"]
    return {p["name"]: (Path(p["manifest_path"]).parent, p["version"]) for p in packages}


def answers_malloc(library: Path) -> None:
    """Runs a program under the object: it is mapped there, and it defines the names."""
    ask = "print(open('/proc/self/maps').read())"
    environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"} | {"LD_PRELOAD": str(library)}
    done = subprocess.run([sys.executable, "-c", ask], env=environment, capture_output=True, text=True, timeout=60)
    if done.returncode != 0 or str(library) not in done.stdout:
        raise RuntimeError(f"a program does not run under it: {done.stderr.strip()[-200:] or done.returncode}")
    names = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    missing = {"malloc", "free", "calloc", "realloc"} - set(re.findall(r" [TWi] (\w+)", names))
    if missing:
        raise RuntimeError(f"it does not define {', '.join(sorted(missing))}")


def build(peer: Peer, sources: dict, folder: Path) -> bool:
    library, failed, note = (folder / n for n in (f"lib{peer.name}.so", f"{peer.name}.failed", f"{peer.name}.json"))
    crate, crate_version = sources[peer.crate]
    # What it is made from: these recipes and the crate.
    made_from = hashlib.sha256(Path(__file__).read_bytes() + crate_version.encode()).hexdigest()
    if library.is_file() and note.is_file() and json.loads(note.read_text()).get("made_from") == made_from:
        return True
    log = Log(folder / f"{peer.name}.log")
    for stale in (library, failed, log.path, note):
        stale.unlink(missing_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix="peer-") as scratch:
            made = peer.recipe(crate, Path(scratch), log)
            # Renamed into place when whole: a run that starts meanwhile sees it or does not.
            shutil.copy(made, library.with_suffix(".new"))
            library.with_suffix(".new").rename(library)
        answers_malloc(library)
    except (RuntimeError, OSError, StopIteration, subprocess.SubprocessError) as problem:
        library.unlink(missing_ok=True)
        failed.write_text(f"{problem} (log: {log.path.name})\n")
        print(f"{peer.name}: cannot be built: {problem}; see {log.path}", file=sys.stderr)
        return False
    record = {"version": peer.version(crate, crate_version), "crate": f"{peer.crate} {crate_version}"}
    record["built_by"] = [re.sub(r"\S*/(peer-\w+|registry/src/[^/ ]+)/", "", c) for c in log.commands]
    record["made_from"] = made_from
    note.write_text(json.dumps(record, indent=1) + "\n")
    print(f"{peer.name}: {record['version']}", file=sys.stderr)
    return True


def main() -> int:
    if len(sys.argv) < 2 or set(sys.argv[2:]) - {p.name for p in PEERS}:
        print(__doc__, file=sys.stderr)
        return 64
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        sources = crates()
    except (OSError, subprocess.SubprocessError) as problem:
        print(f"peers: the sources cannot be fetched: {problem}", file=sys.stderr)
        return 1
    built = [build(p, sources, folder) for p in PEERS if not sys.argv[2:] or p.name in sys.argv[2:]]
    return 0 if any(built) else 1


if __name__ == "__main__":
    sys.exit(main())
