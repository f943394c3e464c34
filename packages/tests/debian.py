"""Debian's installations in folders, by debootstrap; those of another architecture run by qemu's emulation of programs.

The emulator is registered in a user namespace of its own (Linux 6.7 and later), so that nothing of this machine changes.
"""

import os
from pathlib import Path
import platform
import shutil
import subprocess
import tempfile

from made import ROOT

from components import DEBIAN  # of packages/

CACHE = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debootstrap"
EMULATOR = f"/usr/bin/qemu-{{}}-static"
# ELF, 64 bits, little endian, program or shared object, by the machine's number.
MAGIC = {"x86_64": r"\x3e", "aarch64": r"\xb7"}
REGISTER = (r":ebb:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00{machine}\x00"
            r":\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:{emulator}:OCF")
# Waits until its user namespace has ids, registers the emulator, becomes the command in the root "$0".
EMULATED = """read -r _
mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
printf '%s' "$1" >/proc/sys/fs/binfmt_misc/register
shift
mount -t proc proc "$0/proc" && exec chroot "$0" "$@" </dev/null"""
NATIVE = 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@" </dev/null'
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
# So that debootstrap makes no devices in a user namespace, where it may not, and leaves /proc alone.
BOOTSTRAP = ENVIRONMENT | {"container": "lxc"}
# What differs from one moment to the next, or is written by every installation.
PASSING = ("proc", "sys", "dev", "tmp", "var/log", "var/cache", "var/lib/apt")


class Failed(Exception):
    pass


def start(root: Path, arch: str, *command: str, **more) -> subprocess.Popen:
    """The command in the root, in a mount and process namespace of its own."""
    if arch == platform.machine():
        line = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", NATIVE, root, *command]
        return subprocess.Popen(line, env=ENVIRONMENT, stdin=subprocess.DEVNULL, **more)
    rule = REGISTER.format(machine=MAGIC[arch], emulator=EMULATOR.format(arch))
    line = ["unshare", "--user", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", EMULATED, root, rule, *command]
    process = subprocess.Popen(line, env=ENVIRONMENT, stdin=subprocess.PIPE, **more)
    namespace = Path(f"/proc/{process.pid}/ns/user")
    while namespace.readlink() == Path("/proc/self/ns/user").readlink() and process.poll() is None:
        pass
    for kind in ("uid_map", "gid_map"):
        Path(f"/proc/{process.pid}/{kind}").write_text("0 0 65536\n")
    process.stdin.write(b"\n")
    process.stdin.close()
    process.stdin = None
    return process


def output(root: Path, arch: str, *command: str, may_fail: bool = False) -> str:
    process = start(root, arch, *command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        said = process.communicate(timeout=1200)[0].decode(errors="replace")
    finally:
        process.kill()
    if process.returncode and not may_fail:
        raise Failed(f"{' '.join(command)}: status {process.returncode}\n{said[-3000:]}")
    return said


def can_emulate(arch: str) -> bool:
    """Whether a program of that architecture starts here: the smallest one, which does not exist."""
    if arch == platform.machine():
        return True
    if not Path(EMULATOR.format(arch)).exists():
        return False
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "proc").mkdir()
        try:
            said = output(Path(folder), arch, "/none", may_fail=True)
        except OSError:
            return False
    return "chroot: failed to run command" in said and "register" not in said and "mount:" not in said


def make(suite: str, arch: str, folder: Path) -> None:
    """A minimal Debian in `folder`. Downloaded packages are kept in target/debootstrap."""
    CACHE.mkdir(parents=True, exist_ok=True)
    options = ["--variant=minbase", f"--arch={DEBIAN[arch]}", f"--cache-dir={CACHE.resolve()}"]
    foreign = arch != platform.machine()
    done = subprocess.run(["debootstrap", *options, *(["--foreign"] if foreign else []), suite, folder], env=BOOTSTRAP,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise Failed(f"debootstrap {suite} {arch}: {done.stdout[-2000:]}")
    if foreign:
        output(folder, arch, "/usr/bin/env", "container=lxc", "/debootstrap/debootstrap", "--second-stage")
    shutil.rmtree(folder / "var/cache/apt/archives", ignore_errors=True)


def files(root: Path) -> set[str]:
    """All that lies in the root, save what passes, and dpkg's spare copies."""
    found = set()
    for folder, folders, names in os.walk(root):
        inside = os.path.relpath(folder, root)
        folders[:] = [name for name in folders if os.path.normpath(f"{inside}/{name}") not in PASSING]
        found |= {os.path.normpath(f"{inside}/{name}") for name in [*folders, *names] if not name.endswith("-old")}
    return found
