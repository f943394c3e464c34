"""Order, links and recipes of the pages; needs no site.

Run: python3 -m unittest discover -s packages/site/tests -k Pages
"""

from pathlib import Path
import tempfile
import unittest

import built  # noqa: F401  (the path of packages/site)

import pages
import recipes
import verbs

START = """# Documentation

**Diagnose** a process: `ebb why PID`

- [why.md](why.md): where the memory is; [decisions](decisions/README.md)

**Change** the allocator

- [../BIG.md](../BIG.md), [again](why.md#anchor)
"""
TREE = ["BIG.md", "README.md", "docs/README.md", "docs/decisions/0001.md", "docs/decisions/README.md", "docs/why.md",
        "workloads/sse/README.md", "workloads/README.md"]
FILES = {*TREE, "docs/picture.svg"}
HELP = """Find out

Usage: ebb <COMMAND>

Commands:
  run      Run a program
  fix      Put an allocator into a Dockerfile, compose file,
           Cargo.toml
  help     Print this message

Options:
  -h, --help     Print help
"""


class Pages(unittest.TestCase):
    def test_sections_of_the_start_page_are_the_parts(self):
        found = pages.parts(START, TREE)
        self.assertEqual([(part.name, part.pages) for part in found], [
            ("Diagnose", ["docs/why.md", "docs/decisions/README.md"]),
            ("Change", ["BIG.md"]),
            ("Project", ["README.md", "workloads/README.md"]),
        ])
        self.assertEqual((found[0].heading, found[0].command), ("Diagnose a process", "ebb why PID"))
        self.assertEqual((found[1].heading, found[1].command), ("Change the allocator", None))

    def test_docs_readme_has_the_four_steps_and_names_every_page(self):
        texts = pages.of_site(pages.tracked())
        found = pages.parts((pages.ROOT / pages.START).read_text(), texts)
        self.assertEqual([part.name for part in found][:4], ["Diagnose", "Prove", "Change", "Watch"])
        self.assertTrue(all(part.command for part in found[:4]))
        self.assertEqual([page for page in found[-1].pages if page.startswith("docs/")], [])

    def test_links(self):
        cases = {
            "[why.md](why.md)": "[why](why.md)",
            "[../BIG.md](../BIG.md#a)": "[big](../BIG.md#a)",
            "[the why](why.md#how)": "[the why](why.md#how)",
            "[README](../README.md)": "[README](../README.md)",
            "[start](README.md)": "[start](../index.md)",
            "[decisions/README.md](decisions/README.md)": "[decisions](decisions/README.md)",
            "[services](../workloads/)": "[services](../workloads/README.md)",
            "![plot](picture.svg)": "![plot](picture.svg)",
            "[floor](../workloads/floor/)": "floor",
            "[top](#here) [x](https://example.org/why.md)": "[top](#here) [x](https://example.org/why.md)",
            "```md\n[why.md](why.md)\n```": "```md\n[why.md](why.md)\n```",
            "````\n```\ncalls[0](why)\n````": "````\n```\ncalls[0](why)\n````",
            "`calls[0](why)` [`ebb why`](why.md)": "`calls[0](why)` [`ebb why`](why.md)",
        }
        for text, expected in cases.items():
            with self.subTest(text):
                self.assertEqual(pages.linked("docs/x.md", text, FILES, TREE), expected)

    def test_a_page_brings_the_files_that_it_shows(self):
        text = "![plot](picture.svg) [why](why.md)\n```\n[x](secret.svg)\n```"
        self.assertEqual(pages.needed("docs/x.md", text, FILES | {"docs/secret.svg"}), {"docs/picture.svg"})

    def test_verbs_of_a_help(self):
        self.assertEqual(verbs.verbs(HELP), ["run", "fix"])
        self.assertEqual(verbs.verbs("Usage: ebb run\n\nOptions:\n  -h, --help  Print help\n"), [])

    def test_a_recipe(self):
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        recipe = folder / "docs/recipes/web"
        recipe.mkdir(parents=True)
        (recipe / "recipe.toml").write_text(
            "title = 'web 1'\nlines = '''\nebb run -- web\n'''\nexpect = 'It shrinks.'\ntrap = 'It forks.'\nfiles = ['app.py']\n"
            "[mistake]\nfinding = 'late'\n")
        (recipe / "app.py").write_text("print('```')\n")
        files = {"docs/recipes/web/recipe.toml", "docs/recipes/web/app.py"}
        found = recipes.written(folder, files)
        self.assertEqual(set(found), {"docs/recipes/README.md", "docs/recipes/web.md"})
        self.assertIn("[web 1](web.md) | Not measured.", found["docs/recipes/README.md"])
        for text in ("# web 1\n", "````text\nebb run -- web\n````", "It shrinks.", "It forks. `ebb check` then says `late`.", "````python\nprint('```')\n````"):
            self.assertIn(text, found["docs/recipes/web.md"])
        (folder / "docs/recipes/results.json").write_text(
            '{"web": {"date": "2026-01-02", "machine": "M", "command": "C", "versions": {"web": "1"}, "runs": 3, "burst": "B", "metric": "T",'
            ' "glibc": {"before_mb": [20.04, 20, 21], "peak_mb": [1200.4, 1200, 1201], "after_5s_mb": [99.9, 99.9, 99.9]},'
            ' "ebbmalloc": {"before_mb": [1, 1, 1], "peak_mb": [2, 2, 2], "after_5s_mb": [3, 3, 3]}, "sentence": "It helps."}}')
        text = recipes.written(folder, files)["docs/recipes/web.md"]
        self.assertIn("glibc | 20.0 (20.0–21.0) | 1200 (1200–1201) | 99.9\n", text)
        self.assertIn("It helps.", text)
        self.assertIn("`C`, 2026-01-02, M, 3 runs of each.", text)

    def test_no_recipes_no_pages(self):
        self.assertEqual(recipes.written(Path("/nowhere"), {"docs/why.md"}), {})
