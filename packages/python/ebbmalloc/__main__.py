"""`python -m ebbmalloc ...` is `ebb ...` of the same installation, whatever PATH has."""

from importlib import metadata
import os
import sys
import sysconfig
from typing import Iterator


def _candidates() -> Iterator[str]:
    # Where the installer says that it put the file.
    for file in metadata.files("ebbmalloc") or ():
        if file.name == "ebb" and file.parent.name == "bin":
            yield str(file.locate())
    yield os.path.join(sysconfig.get_path("scripts"), "ebb")
    # Of `pip install --target`.
    yield os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bin", "ebb")


def main() -> int:
    for program in _candidates():
        if os.access(program, os.X_OK):
            os.execv(program, [program] + sys.argv[1:])
    print("ebbmalloc: the program ebb is not installed next to this package: install ebbmalloc again", file=sys.stderr)
    return 69


if __name__ == "__main__":
    sys.exit(main())
