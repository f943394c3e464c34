"""The locks of Python packages: versions by folder, hashes once for all."""

import importlib
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "ci"))

python_lock = importlib.import_module("python-lock")

LOCK = """
[[packages]]
name = "anyio"
version = "1.0"
marker = "python_full_version < '4'"
wheels = [{ url = "https://host/anyio-1.0-py3-none-any.whl", hashes = { sha256 = "aa" } }]

[[packages]]
name = "idna"
version = "2.0"
wheels = [
    { url = "https://host/idna-2.0-cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64.whl", hashes = { sha256 = "bb" } },
    { url = "https://host/idna-2.0-cp311-cp311-macosx_11_0_arm64.whl", hashes = { sha256 = "cc" } },
]
"""

WHEELS = {
    "a-1-py2.py3-none-any.whl": True,
    "a-1-py2-none-any.whl": False,
    "a-1-cp39-abi3-manylinux_2_28_aarch64.whl": True,
    "a-1-cp310-cp310-manylinux_2_28_x86_64.whl": False,
    "a-1-cp314-cp314-manylinux_2_28_x86_64.whl": True,
    "a-1-cp314-cp314t-manylinux_2_28_x86_64.whl": False,
    "a-1-cp311-cp311-musllinux_1_2_x86_64.whl": True,
    "a-1-cp311-cp311-musllinux_1_2_aarch64.whl": False,
    "a-1-cp311-cp311-win_amd64.whl": False,
}


class Locks(unittest.TestCase):
    def test_versions_and_hashes_of_a_lock(self):
        lines, hashes = python_lock.split(LOCK)
        self.assertEqual(lines, ["anyio==1.0 ; python_full_version < '4'", "idna==2.0"])
        self.assertEqual(hashes, {"anyio==1.0": ["aa"], "idna==2.0": ["bb"]})

    def test_only_wheels_of_supported_systems_are_hashed(self):
        self.assertEqual({wheel: python_lock.is_used(wheel) for wheel in WHEELS}, WHEELS)

    def test_pip_gets_a_hash_for_each_package_of_each_folder(self):
        self.assertGreater(len(python_lock.folders()), 1)
        for folder in python_lock.folders():
            command = [ROOT / "ci/python-env.sh", "--lock", folder]
            printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
            wanted = [line for line in (folder / "requirements.txt").read_text().splitlines() if not line.startswith("#")]
            self.assertEqual([line.split(" --hash=")[0] for line in printed], wanted, folder)
            self.assertTrue(all(" --hash=sha256:" in line for line in printed), folder)
