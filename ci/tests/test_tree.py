"""The tree has sources and the newest figures, no archives."""

import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILE_MOST = 300_000
# A little above today's figures.
TREE_MOST = 8_000_000
FILES_MOST = 1_405


def sizes() -> dict[str, int]:
    """Links to other files have none of their own."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    files = [name for name in listed.split("\0") if name and (ROOT / name).is_file() and not (ROOT / name).is_symlink()]
    return {name: (ROOT / name).stat().st_size for name in files}


class Tree(unittest.TestCase):
    def test_no_file_is_large(self):
        large = {name: size for name, size in sizes().items() if size > FILE_MOST and name != "Cargo.lock"}
        self.assertEqual(large, {})

    def test_the_tree_is_small(self):
        found = sizes()
        self.assertLess(sum(found.values()), TREE_MOST)
        self.assertLess(len(found), FILES_MOST)

    def test_results_are_one_file_each(self):
        kept = [name for name in sizes() if name.startswith("workloads/") and "/results/" in name]
        self.assertEqual(kept, [])
        benches = {Path(name).suffix for name in sizes() if name.startswith("benches/results/")}
        self.assertEqual(benches, {".json", ".svg"})
