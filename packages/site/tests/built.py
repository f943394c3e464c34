"""What the tests of the site share: the pages of site/, or of the folder that EBB_SITE names, as a browser would read them."""

from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
import os
from pathlib import Path
import sys
import unittest

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "packages/site"), str(ROOT / "workloads")]
from answers.needs import needs  # noqa: E402, F401

TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
SITE = Path(os.environ.get("EBB_SITE", ROOT / "site"))
PROGRAM = Path(os.environ.get("EBB_PROGRAM", TARGET / "release/ebb"))


def require() -> None:
    """Skips what needs the site, if it was not made."""
    if not (SITE / "index.html").exists():
        raise unittest.SkipTest(f"{SITE} does not exist: make site")


@dataclass
class Page(HTMLParser):
    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)  # where a reader may go
    loads: list[str] = field(default_factory=list)  # what the browser loads by itself
    blocks: list[str] = field(default_factory=list)  # <pre>
    depth: int = 0  # of the <pre> that is being read

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        self.ids |= {given[name] for name in ("id", "name") if given.get(name)}
        if given.get("href"):
            to_read = tag == "a" or given.get("rel") in ("next", "prev", "search")
            (self.links if to_read else self.loads).append(given["href"])
        if given.get("src"):
            self.loads.append(given["src"])
        if tag == "pre":
            self.depth += 1
            self.blocks.append("")

    def handle_endtag(self, tag: str) -> None:
        self.depth -= tag == "pre"

    def handle_data(self, data: str) -> None:
        if self.depth:
            self.blocks[-1] += data


def files() -> list[Path]:
    return sorted(SITE.rglob("*.html"))


@cache
def read(file: Path) -> Page:
    page = Page()
    page.feed(file.read_text())
    return page
