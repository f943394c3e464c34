"""Skips of tests whose Debian package is not installed: `crates/test-needs` for Python.

    @needs("redis-server")
    class Service(unittest.TestCase): ...

The skip is listed in target/skipped.tsv, which `make test` prints at its end. With EBB_REQUIRE_ALL=1 the tests run
and fail. Packages are those of ci/packages.txt.
"""

from collections.abc import Callable
from importlib.util import find_spec
import os
from pathlib import Path
import platform
import shutil
import unittest

ROOT = Path(__file__).resolve().parent.parent.parent


def needs(*packages: str) -> Callable[[Callable], Callable]:
    """Decorates a test or a class of tests: it is skipped unless all packages are installed."""
    missing = [package for package in packages if not _is_installed(package)]
    if not missing or os.environ.get("EBB_REQUIRE_ALL") == "1":
        return lambda test: test

    def skipped(test: Callable) -> Callable:
        for package in missing:
            record("package", package, _name(test))
        return unittest.skip(f"not installed: {' '.join(missing)}")(test)

    return skipped


def skip(why: str, test: type) -> unittest.SkipTest:
    """To be raised by a class of tests that cannot run on this machine."""
    record("reason", why, _name(test))
    return unittest.SkipTest(why)


def _is_installed(package: str) -> bool:
    lines = (ROOT / "ci/packages.txt").read_text().splitlines()
    by = {words[0]: words[1] for words in map(str.split, lines) if len(words) > 3}[package]
    if by.startswith("python:"):
        return find_spec(by.removeprefix("python:")) is not None
    if by.startswith("/"):
        return Path(by.replace("ARCH", f"{platform.machine()}-linux-gnu")).is_file()
    return shutil.which(by, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is not None


def _name(test: Callable) -> str:
    return f"{test.__module__}.{test.__qualname__}"


def record(kind: str, what: str, name: str) -> None:
    """A line of target/skipped.tsv: "package" or "reason", what is missing, and what was skipped for that."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    target.mkdir(parents=True, exist_ok=True)
    with (target / "skipped.tsv").open("a") as file:
        file.write(f"{kind}\t{what}\t{name}\n")
