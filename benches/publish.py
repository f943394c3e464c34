#!/usr/bin/env python3
"""Keeps what folders of results say, and renews the pages that show it.

    benches/publish.py benches/build/results/2026-01-31-some-machine-8cpu [FOLDER ...] [--as KIND=NAME]

For each KIND of the folders, the tables of KIND.md go into benches/results/KIND.json, with machine, command and
versions, and its picture into KIND.svg. The raw data stay where they are. `ci/tables.py` then writes the tables of
BENCHMARKS.md. If several folders have a kind, the last one counts. --as keeps a kind under another name.
"""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
# Kinds that a program other than run.py measures.
PROGRAMS = {"far": "far.py", "holds": "holds.py", "inspect": "read_heap.py", "looks": "looks/run.py"}
KINDS = ("return", "generator", "speed", "scale", "python", "pyperformance", "instructions", *PROGRAMS)


def tables_of(page: str) -> tuple[list[dict], list[str]]:
    """The tables of a page of Markdown, each with the heading above it, and the list items after the first table."""
    tables, notes, title, rows = [], [], "", []
    for line in [*page.splitlines(), ""]:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip().strip("|").split("|")])
            continue
        if rows:
            tables.append({"title": title, "columns": rows[0], "rows": rows[2:]})
            rows = []
        if line.startswith("### "):
            title = line.removeprefix("### ")
        elif line.startswith("- ") and tables:
            notes.append(line.removeprefix("- "))
    return tables, notes


def kept(folder: Path, kind: str) -> dict:
    """What stays of a kind's results."""
    record = {}
    for name in (f"{kind}-machine.json", f"{kind}.json"):
        if (folder / name).is_file():
            found = json.loads((folder / name).read_text())
            record = found if isinstance(found, dict) else {}
            break
    tables, notes = tables_of((folder / f"{kind}.md").read_text())
    dated = re.match(r"\d{4}-\d\d-\d\d", folder.name)
    return {
        "kind": kind,
        "date": dated.group() if dated else time.strftime("%Y-%m-%d"),
        "command": re.sub(r" -o \S+", "", record.get("command", "")) or f"benches/{PROGRAMS.get(kind, f'run.py {kind}')}",
        "repetitions": record.get("repetitions"),
        "machine": record.get("machine"),
        "allocators": {
            entry["name"]: f"{entry['what']}; {entry.get('version') or entry['missing']}"
            for entry in record.get("allocators", [])
        },
        "tables": tables,
        "notes": notes,
    }


def text_of(result: dict) -> str:
    """JSON with a row of a table a line, so that a difference of two versions can be read."""
    head = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in result.items() if key != "tables"]
    tables = []
    for table in result["tables"]:
        rows = ",\n".join(f"    {json.dumps(row)}" for row in table["rows"])
        title, columns = json.dumps(table["title"]), json.dumps(table["columns"])
        tables.append(f'  {{\n   "title": {title},\n   "columns": {columns},\n   "rows": [\n{rows}\n   ]\n  }}')
    return "{\n" + ",\n".join([*head, ' "tables": [\n' + ",\n".join(tables) + "\n ]"]) + "\n}\n"


def small(svg: str) -> str:
    """The picture with coordinates to a tenth of a point, a class per style, and no groups, names or line breaks that do nothing."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>| transform=\"rotate\(-0 [^\"]*\"", "", svg, flags=re.DOTALL)
    svg = re.sub(r'"[^"<>]*"', lambda value: re.sub(r"(\d\.\d)\d+", r"\1", value.group()).replace(".0", ""), svg)
    svg = re.sub(r' d="[^"]*"', lambda path: re.sub(r"\s*([A-Zz\"])\s*", r"\1", path.group()), svg)
    svg = re.sub(r"font-family: [^;\"]*", "font-family: sans-serif", svg)
    svg = re.sub(r">\s+<", ">\n<", svg)
    for number, name in enumerate(dict.fromkeys(re.findall(r"(?:href=\"|url\()#(\w+)", svg))):
        svg = svg.replace(name, f"i{number}")
    svg = re.sub(r'<g id="[\w.]+">', "<g>", svg)
    while (flat := re.sub(r"<g>\n((?:(?!</?g\b).*\n)*?)</g>\n", r"\1", svg)) != svg:
        svg = flat
    styles = {style: f"s{number}" for number, style in enumerate(dict.fromkeys(re.findall(r' style="([^"]*)"', svg)))}
    svg = re.sub(r' style="([^"]*)"', lambda found: f' class="{styles[found.group(1)]}"', svg)
    rules = "".join(f".{name}{{{style}}}\n" for style, name in styles.items())
    return svg.replace(">\n", f">\n<style>\n*{{stroke-linejoin:round}}\n{rules}</style>\n", 1)


def main() -> int:
    words = sys.argv[1:]
    renamed = dict(word.split("=", 1) for option, word in zip(words, words[1:]) if option == "--as")
    folders = [Path(word).resolve() for word in words if not word.startswith("-") and "=" not in word]
    sources = {kind: folder for folder in folders for kind in KINDS if (folder / f"{kind}.md").is_file()}
    if not sources or not all(folder in sources.values() for folder in folders):
        print(__doc__, file=sys.stderr)
        return 64
    drawn = {kind: sources[kind] / f"{kind}.jsonl" for kind in ("return", "speed") if kind in sources}
    for kind, folder in sources.items():
        (RESULTS / f"{renamed.get(kind, kind)}.json").write_text(text_of(kept(folder, kind)))
    if any(raw.is_file() for raw in drawn.values()):
        from suite import enter

        enter()
        from suite import plots

        for kind, raw in drawn.items():
            draw = {"return": plots.memory_over_time, "speed": plots.times}[kind]
            picture = RESULTS / f"{renamed.get(kind, kind)}.svg"
            if raw.is_file() and draw(raw, picture):
                picture.write_text(small(picture.read_text()))
    return subprocess.run([HERE.parent / "ci/tables.py"]).returncode


if __name__ == "__main__":
    sys.exit(main())
