#!/usr/bin/env python3
"""Puts the tables of a folder of results into BENCHMARKS.md, between its two markers, and
draws the folder's pictures.

    benches/publish.py benches/results/2026-01-31-some-machine-8cpu
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "BENCHMARKS.md"
MARKERS = ("<!-- tables: benches/publish.py writes below -->\n", "<!-- end of tables -->\n")
KINDS = ("return", "generator", "speed", "scale", "instructions")


def with_tables(page: str, folder_name: str, tables: list[str]) -> str:
    """The page with `tables` in the place of those it has."""
    begin, end = MARKERS
    if page.count(begin) != 1 or page.count(end) != 1:
        raise ValueError("BENCHMARKS.md has lost its markers")
    note = f"\nRaw data: `benches/results/{folder_name}/`.\n"
    head, tail = page.split(begin)[0], page.split(end)[1]
    return head + begin + note + "".join("\n" + text.strip() + "\n" for text in tables) + "\n" + end + tail


def with_picture(table: str, picture: str, what: str) -> str:
    """The section with the picture below its heading."""
    heading, newline, rest = table.partition("\n")
    return f"{heading}{newline}\n![{what}]({picture})\n{rest}"


def main() -> int:
    folder = Path(sys.argv[1]).resolve() if len(sys.argv) == 2 and not sys.argv[1].startswith("-") else None
    tables = {kind: folder / f"{kind}.md" for kind in KINDS} if folder else {}
    texts = {kind: path.read_text() for kind, path in tables.items() if path.is_file()}
    if not texts:
        print(__doc__, file=sys.stderr)
        return 64
    from suite import plots

    drawings = {
        "return": (plots.memory_over_time, "memory above the live heap over time, one line an allocator"),
        "speed": (plots.times, "time of each row over its best, one mark an allocator"),
    }
    for kind, (draw, what) in drawings.items():
        raw, picture = folder / f"{kind}.jsonl", folder / f"{kind}.svg"
        if kind in texts and raw.is_file() and draw(raw, picture):
            texts[kind] = with_picture(texts[kind], f"benches/results/{folder.name}/{picture.name}", what)
    PAGE.write_text(with_tables(PAGE.read_text(), folder.name, list(texts.values())))
    print(f"{PAGE.name}: {len(texts)} sections from {folder}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    from suite import environment

    environment.enter()
    sys.exit(main())
