#!/usr/bin/env python3
"""Locks the Python packages of folders, after an edit of their requirements.in. Needs uv.

    ci/python-lock.py [FOLDER]...     default: every folder that has a requirements.txt

FOLDER/requirements.txt gets the versions. The hashes go into ci/python-hashes.txt, once for all folders, since most of them use
the same packages; ci/python-env.sh puts the two together. Only wheels for CPython 3.11 and later are hashed: for glibc on
x86-64 and aarch64, for musl on x86-64.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HASHES = ROOT / "ci/python-hashes.txt"
COMPILE = "uv pip compile --quiet --universal --python-version 3.11 --format pylock.toml --no-header"
PLATFORM = re.compile(r"any|.*manylinux.*_(x86_64|aarch64)|musllinux.*_x86_64")


def folders() -> list[Path]:
    names = ("benches", "ci/verdicts", "docs/recipes", "packages", "packages/site", "packages/site/tests")
    single = [ROOT / name / "requirements.txt" for name in names]
    return sorted(path.parent for path in [*single, *ROOT.glob("workloads/*/requirements.txt")])


def is_used(wheel: str) -> bool:
    """Whether a file NAME-VERSION-PYTHON-ABI-PLATFORM.whl is for an interpreter and a system that the project supports."""
    python, abi, platform = wheel.removesuffix(".whl").split("-")[-3:]
    wanted = r"cp3\d+" if abi == "abi3" else r"py3|cp31[1-9]"
    return bool(
        any(re.fullmatch(wanted, tag) for tag in python.split("."))
        and not re.fullmatch(r"cp\d+t", abi)
        and PLATFORM.fullmatch(platform)
    )


def split(lock: str) -> tuple[list[str], dict[str, list[str]]]:
    """The lines of requirements.txt, and the hashes of each name==version."""
    lines, hashes = [], {}
    for package in tomllib.loads(lock)["packages"]:
        name = f"{package['name']}=={package['version']}"
        lines.append(f"{name} ; {package['marker']}" if "marker" in package else name)
        wheels = [wheel for wheel in package["wheels"] if is_used(wheel["url"].rsplit("/", 1)[1])]
        hashes[name] = [wheel["hashes"]["sha256"] for wheel in wheels]
    return lines, hashes


def known() -> dict[str, list[str]]:
    """What python-hashes.txt has: a line per package, its hashes below."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in HASHES.read_text().splitlines():
        if line.startswith(" "):
            found[name].append(line.strip())
        elif not line.startswith("#"):
            name = line
            found[name] = []
    return found


def write(folder: Path, lock: str) -> None:
    lines, hashes = split(lock)
    head = f"# Written by ci/python-lock.py {folder.relative_to(ROOT)}; the hashes are in ci/python-hashes.txt.\n"
    (folder / "requirements.txt").write_text(head + "".join(f"{line}\n" for line in lines))
    hashes = known() | hashes
    locks = [(path / "requirements.txt").read_text() for path in folders()]
    used = {line.split()[0] for lock in locks for line in lock.splitlines() if not line.startswith("#")}
    text = "# SHA-256 of the wheels in benches/, docs/recipes/, packages/ and workloads/*/requirements.txt; written by ci/python-lock.py.\n"
    for name in sorted(used & hashes.keys()):
        text += "\n".join([name, *(f" {value}" for value in sorted(hashes[name]))]) + "\n"
    HASHES.write_text(text)


def main() -> int:
    if any(name.startswith("-") for name in sys.argv[1:]):
        print(__doc__, file=sys.stderr)
        return 64
    for folder in [Path(name).resolve() for name in sys.argv[1:]] or folders():
        done = subprocess.run([*COMPILE.split(), folder / "requirements.in"], stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            return 1
        write(folder, done.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
