#!/usr/bin/env python3
"""Runs the preload suite, `ebb why` and `ebb run --verify` on other hosts: C libraries, kernels, architectures, page sizes.

    ci/hosts.sh [--built FOLDER] [--publish] [PATTERN]...

A host is a root of Debian's packages, entered on this kernel or in a virtual machine with a kernel of Debian's (ci/vm.sh).
PATTERN chooses hosts by name; --list prints them. Results go to target/hosts/result.json, each host's when it has ended, next to those that were published;
--publish also copies them to ci/hosts/result.json, from which ci/tables.py writes docs/hosts.md.

--built   FOLDER/ARCH/ebb is what is tested; default target/static (make static)

Status 3 where a tool or the archive is missing, 1 if something failed.
"""

import argparse
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import date
import fcntl
import filecmp
import fnmatch
import json
import os
from pathlib import Path
import platform
import re
import shutil
import subprocess
import sys

import cases

sys.path.append(str(cases.ROOT / "ci"))
import machine

ROOT = cases.ROOT
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "hosts"
HERE = ROOT / "ci/hosts"
# glibc 2.31, 2.36, 2.41 and the newest.
RELEASES = ("bullseye", "bookworm", "trixie", "sid")
PACKAGES = "bash coreutils dash findutils grep sed python3 perl-base util-linux libc-bin libc6-dev libstdc++6 musl".split()
DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}
# As the suite's own (tests/preload/harness/compile.rs), without its warnings.
FLAGS = "-O1 -g -pthread -w -fno-builtin-malloc -fno-builtin-calloc -fno-builtin-realloc -fno-builtin-free".split() + [
    "-fno-builtin-aligned_alloc", "-fno-builtin-memalign", "-fno-builtin-posix_memalign"
]
OBJECTS = ("early_library", "plugin", "witness")
VM_S = 1500


@dataclass(frozen=True)
class Host:
    release: str
    arch: str
    # "": this machine's own; "debian": the release's.
    kernel: str = ""
    pages: str = "4k"

    @property
    def name(self) -> str:
        return "-".join(filter(None, [self.release, self.arch, self.kernel and f"{self.kernel}-{self.pages}"]))

    @property
    def root(self) -> Path:
        return TARGET / f"{self.release}-{self.arch}"


def all_hosts() -> list[Host]:
    hosts = [Host(release, "x86_64") for release in RELEASES]
    hosts += [Host(release, arch, "debian") for arch in DEBIAN for release in RELEASES]
    # Debian has no pages of 16 KiB before 13. Those of 64 KiB are of a kernel that ci/vm/kernel.sh builds from Debian 13's source.
    hosts += [Host(release, "aarch64", "debian", "16k") for release in ("trixie", "sid")]
    return [*hosts, Host("trixie", "aarch64", "debian", "64k")]


def missing(what: str) -> None:
    print(f"hosts.sh: {what}", file=sys.stderr)
    sys.exit(3)


def checked(command: list, **options) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    if done.returncode == 3:
        missing(done.stderr.strip())
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}:\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def logged(log: Path, command: list, environment: dict[str, str]) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as file:
        status = subprocess.run([str(word) for word in command], env=environment, stdout=file, stderr=file).returncode
    if status == 3:
        missing(log.read_text().strip())
    if status != 0:
        raise RuntimeError(f"status {status}; {log} ends with:\n" + "\n".join(log.read_text().splitlines()[-15:]))


# --- A root and its programs


class Compiler:
    """This machine's gcc with headers, start files and libraries of the root, whose libc it links against."""

    def __init__(self, host: Host):
        self.gcc = "gcc" if host.arch == platform.machine() else f"{host.arch}-linux-gnu-gcc"
        for tool in (self.gcc, self.gcc.replace("gcc", "g++")):
            if not shutil.which(tool):
                missing(f"needs {tool}")
        self.root, self.arch = host.root, host.arch
        self.musl = TARGET / f"{host.root.name}-musl-dev" / f"usr/lib/{host.arch}-linux-musl"
        self.musl_headers = TARGET / f"{host.root.name}-musl-dev" / f"usr/include/{host.arch}-linux-musl"

    def _own(self, name: str) -> str:
        return checked([self.gcc, f"-print-file-name={name}"])

    def glibc(self, source: Path, program: Path, *options: str) -> None:
        libraries = self.root / f"usr/lib/{self.arch}-linux-gnu"
        headers = [self._own("include"), self.root / f"usr/include/{self.arch}-linux-gnu", self.root / "usr/include"]
        gcc, language = self.gcc, []
        if source.suffix == ".cpp":
            # Of the library only what is inline is used.
            gcc = self.gcc.replace("gcc", "g++")
            # The library here may be for a newer libc; the program runs with that of the root.
            language = ["-std=c++17", "-fno-allocation-dce", "-Wl,--unresolved-symbols=ignore-in-shared-libs"]
            version = checked([gcc, "-dumpversion"])
            cross = [] if self.arch == platform.machine() else [f"/usr/{self.arch}-linux-gnu/include"]
            folders = [f"{folder}/c++/{version}" for folder in ["/usr/include", *cross]]
            own = [f"{folder}/{self.arch}-linux-gnu" for folder in folders] + [
                f"/usr/include/{self.arch}-linux-gnu/c++/{version}"
            ]
            headers = [*folders, *own, *headers]
        command = [gcc, f"--sysroot={self.root}", f"-B{libraries}", f"-L{libraries}", "-nostdinc", *language, *FLAGS]
        command += [word for folder in headers for word in ("-isystem", folder)]
        checked([*command, *options, "-o", program, source, "-ldl"])

    def musl_program(self, source: Path, program: Path) -> None:
        headers = [self.musl_headers, self._own("include")]
        after = [self.root / f"usr/include/{self.arch}-linux-gnu", self.root / "usr/include"]
        command = [self.gcc, "-nostdinc", "-nostdlib", "-pie", "-fPIE", *FLAGS]
        # gcc's own library asks glibc which atomics there are.
        command += ["-mno-outline-atomics"] if self.arch == "aarch64" else []
        command += [word for folder in headers for word in ("-isystem", folder)]
        command += [word for folder in after for word in ("-idirafter", folder)]
        command += ["-o", program, self.musl / "Scrt1.o", self.musl / "crti.o", self._own("crtbeginS.o"), source]
        # The development package has the archive only.
        command += [f"-L{self.root}/usr/lib/{self.arch}-linux-musl", "-l:libc.so", self._own("libgcc.a"), self._own("crtendS.o"), self.musl / "crtn.o"]
        checked([*command, f"-Wl,-dynamic-linker,/lib/ld-musl-{self.arch}.so.1"])


def glibc_version(host: Host) -> tuple[int, ...]:
    libc = (host.root / f"usr/lib/{host.arch}-linux-gnu/libc.so.6").read_bytes()
    found = re.search(rb"GNU C Library .* version ([\d.]+\d)\.", libc)
    return tuple(map(int, found.group(1).split(b".")))


def place(source: Path, target: Path) -> None:
    """Two machines may share a root: what is there already stays."""
    if not target.exists() or not filecmp.cmp(source, target, shallow=False):
        shutil.copy(source, target)


def prepare(host: Host, built: Path) -> Path:
    """The root, with ebb and the compiled programs in its folder /hosts."""
    unpack = [ROOT / "ci/unpack.sh", "-a", DEBIAN[host.arch]]
    checked([*unpack, "-d", host.release, host.root, *PACKAGES])
    checked([*unpack, host.release, TARGET / f"{host.root.name}-musl-dev", "musl-dev"])
    folder = host.root / "hosts"
    for libc in ("glibc", "musl"):
        (folder / libc).mkdir(parents=True, exist_ok=True)
    (folder / "library").mkdir(exist_ok=True)
    (host.root / "mnt").mkdir(exist_ok=True)
    ebb = built / host.arch / "ebb"
    if not ebb.exists():
        missing(f"{ebb} does not exist: make static")
    place(ebb, folder / "ebb")
    place(HERE / "inside.py", folder / "inside.py")
    chosen = [case for case in cases.all_cases() if case.is_for(glibc_version(host))]
    (folder / "cases.json").write_text(json.dumps([{**asdict(case), "sampled": case.is_sampled} for case in chosen]))
    compiler = Compiler(host)
    inputs = [*cases.PROGRAMS.iterdir(), HERE / "held.c", HERE / "run.py", host.root / ".packages"]
    newest = max(path.stat().st_mtime for path in inputs)

    def compile_with(function: Callable, source: Path, program: Path, *options: str) -> None:
        if not program.exists() or program.stat().st_mtime < newest:
            function(source, program, *options)

    for libc in ("glibc", "musl"):
        for name in {case.command[0] for case in chosen if case.libc == libc} | {"held"}:
            source = next(path for path in (cases.PROGRAMS / f"{name}.c", cases.PROGRAMS / f"{name}.cpp", HERE / f"{name}.c")
                          if path.exists())
            function = compiler.musl_program if libc == "musl" else compiler.glibc
            compile_with(function, source, folder / libc / name, *(["-fno-plt"] if name == "ifunc" else []))
    for name in OBJECTS:
        compile_with(compiler.glibc, cases.PROGRAMS / f"{name}.c", folder / f"glibc/lib{name}.so", "-shared", "-fPIC")
    return folder


# --- A host

# Mounts of its own, which end with the command. Not chroot alone: the kernel refuses user namespaces to its processes.
ENTER = """mount --bind "$0" "$0" && mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" &&
    mount --rbind /sys "$0/sys" && mount -t tmpfs tmpfs "$0/tmp" && cd "$0" && pivot_root . mnt && exec chroot . "$@" """


def run(host: Host, built: Path) -> dict:
    folder, log = prepare(host, built), TARGET / "logs" / f"{host.name}.log"
    inside = ["/usr/bin/python3", "/hosts/inside.py", "/hosts"]
    if not host.kernel:
        user = [] if os.geteuid() == 0 else ["--map-root-user"]
        result = folder / "result.json"
        result.unlink(missing_ok=True)
        logged(log, ["unshare", "--mount", "--pid", "--fork", "--kill-child", *user, "sh", "-c", ENTER, host.root, *inside,
                 "/hosts/result.json"], {"PATH": os.environ["PATH"]})
    else:
        out = TARGET / "out" / host.name
        result = out / "result.json"
        result.unlink(missing_ok=True)
        machine = {
            "EBB_VM_RELEASE": host.release,
            "EBB_VM_ARCH": host.arch,
            "EBB_VM_ROOT": str(host.root),
            "EBB_VM_KERNEL": "" if host.pages == "4k" else host.pages,
            "EBB_VM_CPUS": str(os.cpu_count()),
            "EBB_VM_TIMEOUT": str(VM_S),
            # Linux on x86-64 does not start with such a clock.
            "EBB_VM_CLOCK": "instructions" if host.arch == "aarch64" else "",
        }
        # The files are there only when the machine runs, and so is $OUT.
        command = " ".join([*inside, '"$OUT/result.json"', "--sample"])
        logged(log, [ROOT / "ci/vm.sh", "-o", out, "bash", "-c", command], os.environ | machine)
    told = json.loads(result.read_text())
    return {"name": host.name, "release": host.release, "emulated": bool(host.kernel), **told}


# --- Results


def keep(file: Path, told: dict, commit: str) -> None:
    """Puts one host's result in the file; the others stay."""
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        hosts = json.loads(file.read_text())["hosts"] if file.exists() else []
        order = [host.name for host in all_hosts()]
        named = {host["name"]: host for host in [*hosts, told] if host["name"] in order}
        told |= {"date": date.today().isoformat(), "commit": commit}
        everything = {
            "command": "ci/hosts.sh",
            "machine": f"{machine.processors()}, {machine.kernel()}",
            "hosts": sorted(named.values(), key=lambda host: order.index(host["name"])),
        }
        file.write_text(json.dumps(everything, indent=1) + "\n")


def failures(told: dict) -> list[str]:
    found = []
    for libc, said in told["libcs"].items():
        found += [f"{name} ({libc}): {reason}" for name, reason in said["failed"].items()]
        found += [f"{what} ({libc}): {said[what]}" for what in ("why", "verify") if said[what]]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(usage="ci/hosts.sh [--built FOLDER] [--publish] [--list] [PATTERN]...")
    parser.add_argument("--built", type=Path, default=TARGET.parent / "static")
    parser.add_argument("--publish", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("patterns", nargs="*", default=["*"])
    arguments = parser.parse_args()
    chosen = [host for host in all_hosts() if any(fnmatch.fnmatch(host.name, pattern) for pattern in arguments.patterns)]
    if arguments.list:
        print("\n".join(host.name for host in chosen))
        return 0
    TARGET.mkdir(parents=True, exist_ok=True)
    file, status = TARGET / "result.json", 0
    if not file.exists():
        shutil.copy(HERE / "result.json", file)
    for host in chosen:
        print(f"{host.name}", flush=True)
        try:
            told = run(host, arguments.built)
        except RuntimeError as error:
            print(f"FAILED {host.name}: {error}", flush=True)
            status = 1
            continue
        keep(file, told, machine.commit_of(arguments.built / platform.machine() / "ebb"))
        for failure in failures(told):
            print(f"FAILED {host.name} {failure}", flush=True)
            status = 1
    if arguments.publish and file.exists():
        shutil.copy(file, HERE / "result.json")
    return status


if __name__ == "__main__":
    sys.exit(main())
