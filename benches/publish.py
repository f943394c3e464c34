#!/usr/bin/env python3
"""Puts the tables of folders of results into BENCHMARKS.md, between its two markers, and draws the
folders' pictures. Of a kind that several folders have, the last one's tables are taken.

    benches/publish.py benches/results/2026-01-31-some-machine-8cpu [FOLDER ...]
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "BENCHMARKS.md"
MARKERS = ("<!-- tables: benches/publish.py writes below -->\n", "<!-- end of tables -->\n")
KINDS = ("return", "generator", "speed", "scale", "python", "pyperformance", "instructions")


def with_tables(page: str, tables: list[str]) -> str:
    """The page with `tables` in the place of those it has."""
    begin, end = MARKERS
    if page.count(begin) != 1 or page.count(end) != 1:
        raise ValueError("BENCHMARKS.md has lost its markers")
    head, tail = page.split(begin)[0], page.split(end)[1]
    return head + begin + "".join("\n" + text.strip() + "\n" for text in tables) + "\n" + end + tail


def with_source(table: str, folder_name: str) -> str:
    """The section with the place of its raw data below its heading."""
    heading, newline, rest = table.partition("\n")
    return f"{heading}{newline}\nRaw data: `benches/results/{folder_name}/`.\n{rest}"


def with_picture(table: str, picture: str, what: str) -> str:
    """The section with the picture below its heading."""
    heading, newline, rest = table.partition("\n")
    return f"{heading}{newline}\n![{what}]({picture})\n{rest}"


def main() -> int:
    folders = [Path(name).resolve() for name in sys.argv[1:] if not name.startswith("-")]
    sources = {kind: folder for folder in folders for kind in KINDS if (folder / f"{kind}.md").is_file()}
    if not sources or not all(folder in sources.values() for folder in folders):
        print(__doc__, file=sys.stderr)
        return 64
    from suite import plots

    drawings = {
        "return": (plots.memory_over_time, "memory above the live heap over time, one line an allocator"),
        "speed": (plots.times, "time of each row over its best, one mark an allocator"),
    }
    texts = []
    for kind in (kind for kind in KINDS if kind in sources):
        folder = sources[kind]
        text = with_source((folder / f"{kind}.md").read_text(), folder.name)
        if kind in drawings:
            draw, what = drawings[kind]
            raw, picture = folder / f"{kind}.jsonl", folder / f"{kind}.svg"
            if raw.is_file() and draw(raw, picture):
                text = with_picture(text, f"benches/results/{folder.name}/{picture.name}", what)
        texts.append(text)
    PAGE.write_text(with_tables(PAGE.read_text(), texts))
    print(f"{PAGE.name}: {len(texts)} sections from {', '.join(folder.name for folder in folders)}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    from suite import environment

    environment.enter()
    sys.exit(main())
