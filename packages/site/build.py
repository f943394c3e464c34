#!/usr/bin/env python3
"""Makes site/, the documentation as pages that need no server, by Sphinx.

    packages/site/build.py [--program EBB] [--out FOLDER]

The pages are the tree's .md files (pages.py), one for each verb's `--help` (verbs.py), and one for each recipe (recipes.py).
They are written to target/site first, in the tree's layout. The same tree and program give the same bytes. A site that is
there is replaced once the new one is complete; another folder never.
"""

import argparse
import os
from pathlib import Path
import re
import shutil
import subprocess
import sys

import pages
import recipes
import verbs

ROOT = pages.ROOT
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))


def toctree(entries: list[tuple[str, str]], caption: str = "") -> str:
    """A part of the sidebar, from names and pages, which are taken from the site's root."""
    lines = [f":caption: {caption}"] if caption else []
    lines += [":hidden:", "", *(f"{name} </{page.removesuffix('.md')}>" for name, page in entries)]
    return "\n\n```{toctree}\n" + "\n".join(lines) + "\n```\n"


class Source:
    """The folder that Sphinx reads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = pages.tracked()
        self.texts = {page: (ROOT / page).read_text() for page in pages.of_site(self.files)}
        self.texts |= recipes.written(ROOT, self.files)
        self.pages = sorted(self.texts)
        self.files |= self.texts.keys()

    def write(self, page: str, text: str) -> None:
        file = self.folder / page
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def copy(self, path: str) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, file)

    def write_pages(self) -> None:
        for page, text in self.texts.items():
            for path in pages.needed(page, text, self.files):
                self.copy(path)
            if page == pages.START:
                continue
            below = [inner for inner in self.pages if pages.parent(inner, self.pages) == page]
            tree = toctree([(pages.name(inner, self.texts[inner]), inner) for inner in below]) if below else ""
            self.write(page, pages.linked(page, text, self.files, self.pages) + tree)

    def write_help(self, program: Path) -> list[tuple[str, str]]:
        found = verbs.every(program)
        for one in found:
            about = self.about(one.command)
            more = f"\nMore: [{pages.title(self.texts[about])}](../{about})\n" if about else ""
            self.write(one.page, f"# {one.command}\n\n```text\n{one.text.rstrip()}\n```\n{more}")
        return [(one.command, one.page) for one in found]

    def about(self, command: str) -> str | None:
        """The page of a verb: the first whose heading has it, else the first that shows it."""
        verb = command.removeprefix("ebb").strip()
        listed = [page for part in self.parts() for page in part.pages if page.startswith("docs/")]
        headed = [page for page in listed if verb in re.findall(r"\w+", pages.title(self.texts[page]))]
        shown = [page for page in listed if f"ebb {verb} " in self.texts[page]]
        return next(iter(headed + shown), None) if verb else None

    def parts(self) -> list[pages.Part]:
        return pages.parts(self.texts[pages.START], self.pages)

    def write_start(self, commands: list[tuple[str, str]]) -> None:
        introduction = self.texts["README.md"].split("\n\n")[1]
        text = f"---\nhide-toc: true\n---\n\n# ebbmalloc\n\n{introduction}\n\nNew here? [About ebbmalloc](README.md) has a demo.\n"
        trees = []
        for part in self.parts():
            if part.text:
                command = f"```sh\n{part.command}\n```\n\n" if part.command else ""
                listed = pages.linked(pages.START, part.text, self.files, self.pages, "index.md")
                text += f"\n## {part.heading}\n\n{command}{listed}\n"
            trees.append((part.name, [(pages.name(page, self.texts[page], part.name), page) for page in part.pages]))
            if part.name == "Reference":
                trees.append(("Commands", commands))
        self.write("index.md", text + "".join(toctree(entries, caption) for caption, entries in trees))


def build(program: Path, source: Path, out: Path) -> None:
    if out.exists() and not (out / "searchindex.js").exists():
        raise ValueError(f"{out} is no site; it is left alone")
    shutil.rmtree(source, ignore_errors=True)
    made = source / "html"
    tree = Source(source / "pages")
    tree.write_pages()
    tree.write_start(tree.write_help(program))
    command = [sys.executable, "-m", "sphinx", "--builder", "html", "--conf-dir", Path(__file__).parent, "--quiet",
               "--fail-on-warning", "--keep-going", "--doctree-dir", source / "doctrees", tree.folder, made]
    # Sphinx writes no date, but sorts by language.
    subprocess.run(command, check=True, env=os.environ | {"LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0"})
    for name in (".buildinfo", "objects.inv"):
        (made / name).unlink(missing_ok=True)
    (made / "_sources").rmdir()
    shutil.rmtree(out, ignore_errors=True)
    shutil.move(made, out)


def main() -> int:
    parser = argparse.ArgumentParser(usage="packages/site/build.py [--program EBB] [--out FOLDER]")
    parser.add_argument("--program", type=Path, default=TARGET / "release/ebb")
    parser.add_argument("--out", type=Path, default=ROOT / "site")
    arguments = parser.parse_args()
    try:
        build(arguments.program.resolve(), TARGET / "site", arguments.out.resolve())
    except subprocess.CalledProcessError as error:
        print(f"build.py: {error.cmd[0]} failed with status {error.returncode}", file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:
        print(f"build.py: {error}", file=sys.stderr)
        return 1
    print(f"{arguments.out}/index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
