"""Each recipe of docs/recipes is short, complete, and has figures of the real program."""

import json
import subprocess
import tomllib
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "docs/recipes"
WORDS_MOST = 120
BYTES_MOST = 90_000
FIGURES = ("before_mb", "peak_mb", "after_5s_mb")


def recipes() -> dict[str, dict]:
    return {path.parent.name: tomllib.loads(path.read_text()) for path in sorted(RECIPES.glob("*/recipe.toml"))}


class Recipes(unittest.TestCase):
    def test_all_are_small(self):
        command = ["git", "ls-files", "-z", RECIPES]
        listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
        files = [ROOT / name for name in listed if name and (ROOT / name).exists()]
        self.assertLess(sum(file.stat().st_size for file in files), BYTES_MOST)

    def test_each_is_short_and_complete(self):
        self.assertGreater(len(recipes()), 10)
        for name, told in recipes().items():
            with self.subTest(name):
                text = " ".join(told[key] for key in ("title", "lines", "expect", "trap"))
                self.assertLess(len(text.split()), WORDS_MOST)
                self.assertTrue(all((RECIPES / name / file).is_file() for file in told["files"]))
                self.assertTrue(told["service"]["start"] and told["service"]["processes"] and told["burst"]["about"])
                self.assertTrue("command" in told["burst"] or told["burst"]["requests"])

    def test_each_package_is_known(self):
        known = {line.split()[0] for line in (ROOT / "ci/packages.txt").read_text().splitlines() if line[:1].isalnum()}
        for name, told in recipes().items():
            self.assertEqual(set(told["packages"]) - known, set(), name)

    def test_each_has_figures_with_command_date_and_machine(self):
        results = json.loads((RECIPES / "results.json").read_text())
        for name, told in recipes().items():
            with self.subTest(name):
                result = results[name]
                self.assertEqual(result["command"], f"ci/recipes.py {name}")
                self.assertTrue(result["date"] and result["machine"] and result["runs"] and result["sentence"])
                self.assertEqual(result["burst"], told["burst"]["about"])
                self.assertGreaterEqual(set(result["versions"]), {*told["versions"], "ebbmalloc", "glibc"})
                self.assertGreaterEqual(sum(result["in_charge"].values()), told["service"]["processes"])
                for allocator in ("glibc", "ebbmalloc"):
                    for figure in FIGURES:
                        middle, low, high = result[allocator][figure]
                        self.assertTrue(0 < low <= middle <= high)
                after = {who: result[who]["after_5s_mb"] for who in ("glibc", "ebbmalloc")}
                self.assertEqual(result["helps"], after["ebbmalloc"][2] < 0.9 * after["glibc"][1])


if __name__ == "__main__":
    unittest.main()
