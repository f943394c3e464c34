"""The built site: links, anchors, the program's help, nothing from elsewhere. `make site` before."""

import json
from pathlib import Path
import re
import unittest
from urllib.parse import unquote, urlsplit

from built import PROGRAM, ROOT, SITE, files, read, require

import pages
import verbs


def setUpModule() -> None:
    require()


def leads_nowhere(file: Path, link: str) -> bool:
    path, anchor = unquote(urlsplit(link).path), unquote(urlsplit(link).fragment)
    found = (file.parent / path).resolve() if path else file
    if not found.is_file() or SITE.resolve() not in found.resolve().parents:
        return True
    # A page's own script makes the anchors of a search.
    return bool(anchor) and found.suffix == ".html" and anchor not in read(found).ids


class Site(unittest.TestCase):
    maxDiff = None

    def test_every_link_and_anchor_leads_somewhere(self):
        broken, count = [], 0
        for file in files():
            page = read(file)
            for link in [*page.links, *page.loads]:
                if not pages.is_external(link):
                    count += 1
                    if leads_nowhere(file, link):
                        broken.append(f"{file.relative_to(SITE)}: {link}")
        self.assertEqual(broken, [])
        self.assertGreater(count, 1000)

    def test_nothing_is_loaded_from_elsewhere(self):
        loaded = {link for file in files() for link in read(file).loads if pages.is_external(link) and not link.startswith("data:")}
        self.assertEqual(loaded, set())
        styles = {file.name: re.findall(r"(?:url\(|@import )\s*['\"]?(?:https?:)?//[^)'\"]+", file.read_text()) for file in SITE.rglob("*.css")}
        self.assertEqual({name: found for name, found in styles.items() if found}, {})

    def test_every_page_of_the_tree_is_in_the_sidebar(self):
        linked = {unquote(urlsplit(link).path) for link in read(SITE / "index.html").links}
        wanted = [page.removesuffix(".md") + ".html" for page in pages.of_site(pages.tracked()) if page != pages.START]
        self.assertEqual([page for page in wanted if page not in linked], [])
        self.assertGreater(len(wanted), 50)

    def test_the_start_page_leads_to_each_step_in_order(self):
        text = (SITE / "index.html").read_text()
        article = text[text.index("<article") : text.index("</article>")]
        steps = [r"<h2>Diagnose.*?ebb why.*?docs/diagnosis\.html", r"<h2>Prove.*?ebb compare.*?docs/compare\.html",
                 r"<h2>Change.*?ebb run.*?docs/run\.html", r"<h2>Watch.*?ebb check.*?docs/check\.html"]
        self.assertRegex(re.sub(r"<span[^>]*>|</span>", "", article), re.compile(".*?".join(steps), re.DOTALL))

    def test_the_search_knows_words(self):
        index = (SITE / "searchindex.js").read_text()
        terms = json.loads(index.removeprefix("Search.setIndex(").removesuffix(")"))["terms"]
        for word in ("membarri", "gunicorn", "malloc_trim", "ebb_conf", "ptrace"):
            self.assertIn(word, terms)


class Help(unittest.TestCase):
    def test_every_help_is_what_the_program_prints(self):
        if not PROGRAM.exists():
            self.skipTest(f"{PROGRAM} does not exist: make build")
        asked = verbs.every(PROGRAM)
        self.assertGreater(len(asked), 10)
        shown = {one.command: read(SITE / one.page.replace(".md", ".html")).blocks[0] for one in asked}
        self.assertEqual({name: text.rstrip() for name, text in shown.items()}, {one.command: one.text.rstrip() for one in asked})
        self.assertEqual({file.stem for file in (SITE / "commands").iterdir()}, {one.command.replace(" ", "-") for one in asked})

    def test_no_page_of_the_tree_has_a_help_of_its_own(self):
        """It would not be compared."""
        having = [page for page in pages.of_site(pages.tracked()) if re.search(r"^Usage: ebb ", (ROOT / page).read_text(), re.MULTILINE)]
        self.assertEqual(having, [])
