"""What the tests of packages share: dist/, or what EBB_DIST names; skips that `make test` lists."""

from hashlib import sha256
import json
import os
from pathlib import Path
import platform
import sys
import tarfile
import unittest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "packages"))
sys.path.insert(0, str(ROOT / "workloads"))
from answers.needs import needs  # noqa: E402, F401

DIST = Path(os.environ.get("EBB_DIST", ROOT / "dist"))
# Nothing of the checkout, and no setting of this machine's Python.
BARE = {"PATH": "/usr/bin:/bin", "HOME": "/nowhere", "LC_ALL": "C.UTF-8"}
# Exit codes of `ebb why` that say where the memory is.
VERDICTS = range(0, 21)


def one(pattern: str) -> Path:
    """The file of dist/ with this name; ARCH is this machine's architecture. Skips the test if dist/ was not made."""
    found = sorted(DIST.glob(pattern.replace("ARCH", platform.machine())))
    if not found and not DIST.exists():
        raise unittest.SkipTest(f"{DIST} does not exist: make dist")
    assert len(found) == 1, (pattern, found)
    return found[0]


def long(*packages: str):
    """`needs`, for tests that `make test-long` runs."""
    return needs(*packages) if os.environ.get("EBB_LONG") == "1" else unittest.skip("EBB_LONG=1 runs it")


def layout(archive: Path) -> tuple[dict, dict]:
    """The blobs of an OCI layout by digest, which are what their names say, those of JSON as such; and its index.json."""
    with tarfile.open(archive) as tar:
        files = {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}
    assert json.loads(files.pop("oci-layout")) == {"imageLayoutVersion": "1.0.0"}
    index = json.loads(files.pop("index.json"))
    blobs = {}
    for name, blob in files.items():
        assert name == f"blobs/sha256/{sha256(blob).hexdigest()}", name
        blobs[f"sha256:{Path(name).name}"] = json.loads(blob) if blob.startswith(b"{") else blob
    return blobs, index
