"""Crates come from the registry, under licences that allow what this one allows; advisories are CI's (cargo-audit)."""

import json
import re
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REGISTRY = "registry+https://github.com/rust-lang/crates.io-index"
ALLOWED = {"MIT", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Unicode-3.0", "Unlicense", "Zlib", "CC0-1.0", "BSL-1.0"}


def packages() -> list[dict]:
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", "x86_64-unknown-linux-gnu"]
    answer = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return [package for package in json.loads(answer.stdout)["packages"] if package["source"]]


def is_allowed(licence: str) -> bool:
    """One of what may be chosen, with all that go together."""
    choices = re.split(r" OR |/", licence.replace("(", "").replace(")", ""))
    return any({part.split(" WITH ")[0] for part in choice.split(" AND ")} <= ALLOWED for choice in choices)


class Dependencies(unittest.TestCase):
    def test_crates_are_from_the_registry(self):
        self.assertEqual([it["id"] for it in packages() if it["source"] != REGISTRY], [])

    def test_licences_are_permissive(self):
        self.assertEqual([(it["name"], it["license"]) for it in packages() if not is_allowed(it["license"] or "")], [])
