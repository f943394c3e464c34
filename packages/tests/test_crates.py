"""The manifests of what is published."""

from pathlib import Path
import unittest

import made  # noqa: F401  (the path of packages/)

import crates


class Crates(unittest.TestCase):
    def setUp(self):
        self.packages = crates.published()

    def test_the_programs_of_tests_and_the_objects_are_not_published(self):
        for name in ("ebbmalloc-c", "ebbmalloc-compat", "ebb-manual", "test-layers", "test-needs"):
            self.assertNotIn(name, self.packages)

    def test_each_comes_after_what_it_needs(self):
        order = [*self.packages]
        for name in order:
            for other in crates.needed(name, self.packages):
                self.assertLess(order.index(other), order.index(name), f"{other} before {name}")
        self.assertIn("ebbmalloc-unwind", crates.needed("ebbmalloc", self.packages))

    def test_each_says_what_a_registry_shows(self):
        for name, package in self.packages.items():
            with self.subTest(name):
                for key in ("description", "license", "repository", "rust_version"):
                    self.assertTrue(package[key], key)
                self.assertLess(len(package["description"]), 130)
                self.assertIn("targets", package["metadata"]["docs"]["rs"])
                folder = Path(package["manifest_path"]).parent
                self.assertTrue((folder / "LICENSE-MIT").is_file() and (folder / "LICENSE-APACHE").is_file())
                for part in package["dependencies"]:
                    if part["name"] in self.packages:
                        self.assertEqual(part["req"], f"={package['version']}", part["name"])
                    elif part.get("path"):
                        self.assertEqual(part["kind"], "dev", part["name"])

    def test_those_that_users_name_have_a_page(self):
        self.assertEqual([name for name in self.packages if self.packages[name]["readme"]], ["ebbmalloc", "ebbmalloc-cli"])
