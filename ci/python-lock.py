#!/usr/bin/env python3
"""Locks the Python packages of workloads, after an edit of their requirements.in. Needs uv.

    ci/python-lock.py workloads/sse [FOLDER ...]

FOLDER/requirements.txt gets the versions. Their hashes go into workloads/hashes.txt, once for all workloads, since most of
them use the same packages; ci/python-env.sh puts the two together. Hashes of packages that no workload has any more are dropped.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HASHES = ROOT / "workloads/hashes.txt"
COMPILE = (
    "uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header"
)


def split(lock: str) -> tuple[list[str], dict[str, list[str]]]:
    """The lines of a lock without hashes, and the hashes of each name==version."""
    versions, hashes = [], {}
    for line in lock.splitlines():
        if found := re.match(r"\s+--hash=(\S+)", line):
            hashes[versions[-1].split()[0]].append(found.group(1))
        elif line and not line.lstrip().startswith("#"):
            versions.append(line.removesuffix("\\").strip())
            hashes[versions[-1].split()[0]] = []
    return versions, hashes


def known() -> dict[str, list[str]]:
    """What hashes.txt has."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in HASHES.read_text().splitlines() if HASHES.exists() else []:
        if line.startswith(" "):
            found[name].append(line.strip())
        elif not line.startswith("#"):
            name = line
            found[name] = []
    return found


def write(folder: Path, lock: str) -> None:
    versions, hashes = split(lock)
    head = f"# ci/python-lock.py {folder.relative_to(ROOT)} wrote this; the hashes are in workloads/hashes.txt.\n"
    (folder / "requirements.txt").write_text(head + "".join(f"{line}\n" for line in versions))
    hashes = known() | hashes
    used = set()
    for path in ROOT.glob("workloads/*/requirements.txt"):
        used |= {line.split()[0] for line in path.read_text().splitlines() if not line.startswith(("#", " "))}
    text = "# Hashes of the packages in workloads/*/requirements.txt; ci/python-lock.py writes them.\n"
    for name in sorted(used & hashes.keys()):
        text += "\n".join([name, *(f" {value}" for value in sorted(hashes[name]))]) + "\n"
    HASHES.write_text(text)


def main() -> int:
    folders = [Path(name).resolve() for name in sys.argv[1:]]
    if not folders or any(name.startswith("-") for name in sys.argv[1:]):
        print(__doc__, file=sys.stderr)
        return 64
    for folder in folders:
        done = subprocess.run([*COMPILE.split(), folder / "requirements.in"], stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            return 1
        write(folder, done.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
