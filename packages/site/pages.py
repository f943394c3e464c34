"""The pages of the site: the tree's .md files, their order, and their links. Nothing here runs a program but git.

docs/README.md is the start page: its sections (**Diagnose**, **Prove**, ...) are the parts of the sidebar, its links their pages.
A page that it does not name comes below the README.md of its folder, or into the last part.
"""

from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
import posixpath
import re
import subprocess

ROOT = Path(__file__).resolve().parents[2]
START = "docs/README.md"
REST = "Project"
# Pages for the forge.
LEFT_OUT = (".github/",)
# Where the first heading says too little in a sidebar.
NAMES = {"README.md": "About ebbmalloc", "benches/README.md": "How the benchmarks run"}
SECTION = re.compile(r"^\*\*(?P<name>\w+)\*\*(?P<rest>[^:\n]*)(?:: `(?P<command>[^`]+)`)?$", re.MULTILINE)
# Or code, which holds none.
LINK = re.compile(r"`[^`\n]*`|(!?)\[([^\]]*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"^ *(`{3,}).*?^ *\1$", re.DOTALL | re.MULTILINE)


@dataclass
class Part:
    """Of the sidebar."""

    name: str
    heading: str  # on the start page
    command: str | None
    text: str
    pages: list[str] = field(default_factory=list)


def tracked() -> set[str]:
    """All files, by their paths in the tree."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    return {name for name in listed.split("\0") if name and (ROOT / name).is_file()}


def of_site(files: set[str]) -> list[str]:
    return sorted(name for name in files if name.endswith(".md") and not name.startswith(LEFT_OUT))


def target(page: str, link: str) -> str:
    """The path in the tree that a link of a page leads to."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link))


def links(text: str) -> list[str]:
    return [link for _, _, link in LINK.findall(text) if link]


def is_external(link: str) -> bool:
    return re.match(r"[a-z]+:", link) is not None


def parts(start: str, pages: list[str]) -> list[Part]:
    """The sections of docs/README.md with their pages, then those that it does not name."""
    found, placed = [], {START}
    sections = list(SECTION.finditer(start))
    for section, following in zip(sections, [*sections[1:], None]):
        text = start[section.end() : following.start() if following else None].strip()
        part = Part(section["name"], section["name"] + section["rest"], section["command"], text)
        for link in links(text):
            page = page_of(target(START, link.partition("#")[0]), pages)
            if page and page not in placed:
                placed.add(page)
                part.pages.append(page)
        found.append(part)
    rest = [page for page in pages if page not in placed and parent(page, pages) is None]
    # README.md is what a newcomer reads first.
    found.append(Part(REST, REST, None, "", sorted(rest, key=lambda page: (page != "README.md", page))))
    return found


def page_of(path: str, pages: list[str]) -> str | None:
    """A page, or the one of a folder."""
    return next((page for page in (path, f"{path}/README.md") if page in pages), None)


def parent(page: str, pages: list[str]) -> str | None:
    """The README.md above: decisions/README.md of a decision, workloads/README.md of a workload's. docs/README.md has none."""
    folder = PurePosixPath(page).parent
    for above in (folder, folder.parent):
        found = f"{above}/README.md"
        if found in pages and found not in (page, START):
            return found
    return None


def title(text: str) -> str:
    found = re.search(r"^# (.*)$", text, re.MULTILINE)
    return found[1] if found else ""


def name(page: str, text: str, part: str = "") -> str:
    """In the sidebar: the heading, without the name of its part."""
    return NAMES.get(page) or title(text).removeprefix(f"{part}: ").replace("`", "")


def outside_code(change, text: str) -> str:
    """The text with `change` applied to what is in no block of code."""
    done, end = [], 0
    for fence in FENCE.finditer(text):
        done += [change(text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*done, change(text[end:])])


def linked(page: str, text: str, files: set[str], pages: list[str], place: str | None = None) -> str:
    """The text with links for the site, which has the tree's layout.

    A folder is its README.md, or no link. docs/README.md is the start page. A link whose text is a file's name loses `.md`;
    one to a README.md has its folder's name. `place` is where the text stands, if not at its own.
    """

    def renewed(match: re.Match) -> str:
        mark, words, link = match.groups()
        if link is None or is_external(link) or link.startswith("#"):
            return match[0]
        path, _, anchor = link.partition("#")
        found = page_of(target(page, path), pages) or target(page, path)
        if found not in files:
            return words
        if re.fullmatch(r"[\w./-]+\.md", words):
            file = PurePosixPath(found)
            words = NAMES.get(found) or (file.parent.name if file.stem == "README" else file.stem.lower())
        found = "index.md" if found == START else found
        path = posixpath.relpath(found, posixpath.dirname(place or page) or ".")
        return f"{mark}[{words}]({path}{'#' if anchor else ''}{anchor})"

    return outside_code(lambda prose: LINK.sub(renewed, prose), text)


def needed(page: str, text: str, files: set[str]) -> set[str]:
    """Files that are no pages, which a page shows or offers."""
    found = set()

    def note(prose: str) -> str:
        found.update(target(page, link.partition("#")[0]) for link in links(prose) if not is_external(link))
        return prose

    outside_code(note, text)
    return {path for path in found if path in files and not path.endswith(".md")}
