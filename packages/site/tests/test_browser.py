"""Every page in a browser, from the disk, on a desktop and on a phone: nothing sticks out, fails or is fetched; a search finds.

Run: packages/site/tests/.venv/bin/python -m unittest discover -s packages/site/tests
"""

import os
from pathlib import Path
import shutil
import unittest

from built import SITE, files, needs, require

try:
    from playwright.sync_api import Page, sync_playwright
except ImportError:
    sync_playwright = None

DESKTOP, PHONE = (1280, 800), (360, 740)
# What sticks out of the page to the right, unless a block or table of its own around it scrolls. The theme lets a phone scroll
# the whole text, which would hide it.
STICKING_OUT = """() => {
  const width = document.documentElement.clientWidth;
  const scrolls = (node) => node && node !== document.body
    && ((getComputedStyle(node).overflowX !== "visible" && !node.matches(".content"))
      || getComputedStyle(node).position === "fixed" || scrolls(node.parentElement));
  return [...document.querySelectorAll("body *")]
    .filter((node) => node.getBoundingClientRect().right > width + 1 && !scrolls(node))
    .map((node) => node.tagName + "." + node.className);
}"""


@needs("chromium")
class Browser(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        require()
        if sync_playwright is None:
            raise unittest.SkipTest("no playwright: ci/python-env.sh packages/site/tests")
        playwright = cls.enterClassContext(sync_playwright())
        cls.browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        cls.addClassCleanup(cls.browser.close)

    def page(self, size: tuple[int, int]) -> "Page":
        """An empty one, which notes what goes wrong and what it asks for."""
        context = self.browser.new_context(viewport={"width": size[0], "height": size[1]})
        self.addCleanup(context.close)
        page = context.new_page()
        self.wrong, self.asked = [], []
        page.on("console", lambda said: self.wrong.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("requestfailed", lambda request: self.wrong.append(f"{request.url}: {request.failure}"))
        page.on("request", lambda request: self.asked.append(request.url))
        return page

    def look(self, size: tuple[int, int]) -> None:
        page = self.page(size)
        for file in files():
            with self.subTest(str(file.relative_to(SITE))):
                self.wrong.clear()
                page.goto(file.resolve().as_uri())
                self.assertEqual(page.evaluate(STICKING_OUT), [])
                self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), size[0])
                self.assertEqual(page.evaluate("[...document.images].filter((it) => !it.naturalWidth).map((it) => it.src)"), [])
                self.assertTrue(page.title())
                self.assertEqual(self.wrong, [])
        self.assertEqual({url.partition(":")[0] for url in self.asked} - {"file", "data"}, set())

    def test_desktop(self):
        self.look(DESKTOP)

    def test_phone(self):
        self.look(PHONE)

    def search(self, size: tuple[int, int], words: str) -> list[str]:
        """Typed on the start page: the results."""
        page = self.page(size)
        page.goto((SITE / "index.html").resolve().as_uri())
        box = page.locator(".sidebar-search")
        if not box.is_visible() or box.bounding_box()["x"] < 0:
            page.locator(".nav-overlay-icon").click()
        box.fill(words)
        box.press("Enter")
        page.wait_for_function("/found|not match/.test(document.querySelector('.search-summary')?.textContent)")
        found = page.locator("#search-results ul.search a").all()
        results = [link.inner_text() for link in found]
        if found:
            found[0].click()
            page.wait_for_load_state()
            self.assertIn(words.split()[0].lower(), page.locator("article").inner_text().lower())
        self.assertEqual(self.wrong, [])
        self.assertEqual({url.partition(":")[0] for url in self.asked} - {"file", "data"}, set())
        return results

    def test_a_search_finds_on_both(self):
        for size in (DESKTOP, PHONE):
            with self.subTest(size):
                self.assertTrue(any("Glossary" in result for result in self.search(size, "granule")))
                self.assertIn("Change: ebb run", self.search(size, "preload cache"))
                self.assertEqual(self.search(size, "xyzzyplugh"), [])

    def test_pictures(self):
        """For people: EBB_SCREENSHOTS names a folder."""
        folder = os.environ.get("EBB_SCREENSHOTS")
        if not folder:
            self.skipTest("EBB_SCREENSHOTS is not set")
        for name, size in {"desktop": DESKTOP, "phone": PHONE}.items():
            page = self.page(size)
            for file in files():
                page.goto(file.resolve().as_uri())
                path = "-".join(file.relative_to(SITE).with_suffix(".png").parts)
                page.screenshot(path=Path(folder, name, path))
