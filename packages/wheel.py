"""The wheel of one architecture: the package in packages/python with `ebb` and the library, built by hatchling.

maturin would compile the program once more, in its own way, and has no place for a second file; here the wheel has the very
files of the archive.
"""

import os
from pathlib import Path
import re
import shutil
import subprocess
import sys

import components

PYTHON = Path(__file__).resolve().parent / "python"


def platforms(files: list[Path]) -> str:
    """The tags that are true of these files, by the versions of glibc's symbols that they need.

    A file that needs none is for every libc; glibc 2.17 and musl 1.2 are the oldest that installers have names for.
    """
    machine, newest = "", (0,)
    for file in files:
        read = components.run("readelf", "--wide", "--file-header", "--dynamic", "--version-info", file)
        machine = {"X86-64": "x86_64", "AArch64": "aarch64"}[re.search(r"Machine: .*?(X86-64|AArch64)", read)[1]]
        needed = re.findall(r"\bGLIBC_([0-9.]+)", read)
        if re.search(r"\(NEEDED\)", read) and not needed:
            raise ValueError(f"{file} needs a library of unknown version")
        newest = max([newest, *(tuple(map(int, number.split("."))) for number in needed)])
    if newest == (0,):
        return f"manylinux_2_17_{machine}.musllinux_1_2_{machine}"
    return f"manylinux_{newest[0]}_{max(newest[1], 17)}_{machine}"


def build(tree: Path, stage: Path, out: Path, epoch: int) -> None:
    """From the archive's tree; `stage` is a folder for the sources."""
    shutil.rmtree(stage, ignore_errors=True)
    shutil.copytree(PYTHON, stage, ignore=shutil.ignore_patterns("__pycache__"))
    (stage / "bin").mkdir()
    shutil.copy(tree / "bin/ebb", stage / "bin/ebb")
    shutil.copy(tree / "lib/libebbmalloc.so", stage / "ebbmalloc")
    shutil.copy(components.ROOT / "Cargo.toml", stage)
    for licence in (tree / "share/doc/ebbmalloc").glob("LICENSE*"):
        shutil.copy(licence, stage)
    tag = f"py3-none-{platforms([tree / 'bin/ebb', tree / 'lib/libebbmalloc.so'])}"
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(epoch), "EBB_WHEEL_TAG": tag}
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", out.resolve()]
    subprocess.run(command, cwd=stage, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
