"""The locks of Python packages: versions by folder, hashes once for all. Crates come from the registry, under licences that
allow what this one allows; advisories are CI's (cargo-audit)."""

import importlib
import json
import re
import subprocess
import sys
import tomllib
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "ci"))
REGISTRY = "registry+https://github.com/rust-lang/crates.io-index"
ALLOWED = {"MIT", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Unicode-3.0", "Unlicense", "Zlib", "CC0-1.0", "BSL-1.0"}


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


def packages() -> list[dict]:
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", "x86_64-unknown-linux-gnu"]
    answer = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return [package for package in json.loads(answer.stdout)["packages"] if package["source"]]


def is_allowed(licence: str) -> bool:
    """One of what may be chosen, with all that go together."""
    choices = re.split(r" OR |/", licence.replace("(", "").replace(")", ""))
    return any({part.split(" WITH ")[0] for part in choice.split(" AND ")} <= ALLOWED for choice in choices)


class Dependencies(unittest.TestCase):
    def test_locks_of_other_workspaces_have_what_our_crates_need(self):
        command = ["cargo", "metadata", "--no-deps", "--format-version", "1"]
        answer = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
        needed = {package["name"]: {it["name"] for it in package["dependencies"] if it["kind"] != "dev" and not it["optional"]}
                  for package in json.loads(answer.stdout)["packages"]}
        listed = subprocess.run(["git", "ls-files", "*/Cargo.lock"], cwd=ROOT, check=True, capture_output=True, text=True)
        for lock in listed.stdout.split():
            for package in tomllib.loads((ROOT / lock).read_text())["package"]:
                if "source" not in package and (wanted := needed.get(package["name"])):
                    found = {it.split()[0] for it in package.get("dependencies", [])}
                    self.assertLessEqual(wanted, found, f"{lock}: cargo update --workspace in its folder")

    def test_crates_are_from_the_registry(self):
        self.assertEqual([it["id"] for it in packages() if it["source"] != REGISTRY], [])

    def test_licences_are_permissive(self):
        self.assertEqual([(it["name"], it["license"]) for it in packages() if not is_allowed(it["license"] or "")], [])
