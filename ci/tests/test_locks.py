"""The locks of the workloads: versions by workload, hashes once for all."""

import importlib
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "ci"))

python_lock = importlib.import_module("python-lock")

LOCK = """\
# a comment
anyio==1.0 ; python_version < '4' \\
    --hash=sha256:aa \\
    --hash=sha256:bb
    # via fastapi
idna==2.0 \\
    --hash=sha256:cc
"""


class Locks(unittest.TestCase):
    def test_versions_and_hashes_of_a_lock(self):
        versions, hashes = python_lock.split(LOCK)
        self.assertEqual(versions, ["anyio==1.0 ; python_version < '4'", "idna==2.0"])
        self.assertEqual(hashes, {"anyio==1.0": ["sha256:aa", "sha256:bb"], "idna==2.0": ["sha256:cc"]})

    def test_pip_gets_a_hash_for_each_package_of_each_workload(self):
        locks = list(ROOT.glob("workloads/*/requirements.txt"))
        self.assertTrue(locks)
        for lock in locks:
            command = [ROOT / "ci/python-env.sh", "--lock", lock.parent]
            printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
            wanted = [line for line in lock.read_text().splitlines() if not line.startswith("#")]
            self.assertEqual([line.split(" --hash=")[0] for line in printed], wanted, lock)
            self.assertTrue(all(" --hash=sha256:" in line for line in printed), lock)


if __name__ == "__main__":
    unittest.main()
