#!/usr/bin/env python3
"""Puts the tables of a folder of results into BENCHMARKS.md, between its two markers.

    benches/publish.py benches/results/2026-01-31-some-machine-8cpu
"""

import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "BENCHMARKS.md"
MARKERS = ("<!-- tables: benches/publish.py writes below -->\n", "<!-- end of tables -->\n")


def with_tables(page: str, folder_name: str, tables: list[str]) -> str:
    """The page with `tables` in the place of those it has."""
    begin, end = MARKERS
    if page.count(begin) != 1 or page.count(end) != 1:
        raise ValueError("BENCHMARKS.md has lost its markers")
    note = f"\nRaw data: `benches/results/{folder_name}/`.\n"
    head, tail = page.split(begin)[0], page.split(end)[1]
    return head + begin + note + "".join("\n" + text.strip() + "\n" for text in tables) + "\n" + end + tail


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) == 2 and not sys.argv[1].startswith("-") else None
    tables = [folder / f"{kind}.md" for kind in ("return", "speed", "instructions")] if folder else []
    tables = [path for path in tables if path.is_file()]
    if not tables:
        print(__doc__, file=sys.stderr)
        return 64
    PAGE.write_text(with_tables(PAGE.read_text(), folder.resolve().name, [path.read_text() for path in tables]))
    print(f"{PAGE.name}: {len(tables)} sections from {folder}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
