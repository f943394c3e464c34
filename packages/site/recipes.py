"""The pages of docs/recipes/NAME: what a user writes, the figures of ci/recipes.py in results.json, the program's trap, its files."""

import json
from pathlib import Path
import tomllib

FOLDER = "docs/recipes"
INTRODUCTION = "Programs that were run on ebbmalloc and on glibc, each under a burst, with the lines that put ebbmalloc in charge.\n"
COLUMNS = {"before_mb": "before", "peak_mb": "peak", "after_5s_mb": "5 s after"}
LANGUAGES = {".py": "python", ".rb": "ruby", ".js": "js", ".php": "php", ".rs": "rust", ".java": "java", ".toml": "toml",
             ".sql": "sql", ".sh": "sh", ".json": "json"}


def written(root: Path, files: set[str]) -> dict[str, str]:
    """The text of each page by its path, an overview among them; nothing without recipes."""
    names = sorted(path.split("/")[2] for path in files if path.startswith(f"{FOLDER}/") and path.endswith("/recipe.toml"))
    folders = {name: root / FOLDER / name for name in names}
    recipes = {name: tomllib.loads((folder / "recipe.toml").read_text()) for name, folder in folders.items()}
    file = root / FOLDER / "results.json"
    results = json.loads(file.read_text()) if file.exists() else {}
    found = {f"{FOLDER}/{name}.md": page(recipes[name], results.get(name), folders[name]) for name in names}
    overview = f"{FOLDER}/README.md"
    if names and overview not in files:
        rows = "".join(f"[{recipes[name]['title']}]({name}.md) | {sentence(results.get(name))}\n" for name in names)
        found[overview] = f"# Recipes\n\n{INTRODUCTION}\nprogram | what came out\n---|---\n{rows}"
    return found


def sentence(figures: dict | None) -> str:
    return figures["sentence"] if figures else "Not measured."


def page(recipe: dict, figures: dict | None, folder: Path) -> str:
    text = f"# {recipe['title']}\n\n{block(recipe['lines'], 'text')}\n{recipe.get('expect', '')}\n\n{sentence(figures)}\n"
    if figures:
        text += f"\n{table(figures)}"
    if "trap" in recipe:
        found = recipe.get("mistake", {}).get("finding")
        text += f"\n## What goes wrong\n\n{recipe['trap']}{f' `ebb check` then says `{found}`.' if found else ''}\n"
    for name in recipe.get("files", []):
        text += f"\n## {name}\n\n{block((folder / name).read_text(), LANGUAGES.get(Path(name).suffix, 'text'))}"
    return text


def block(text: str, language: str) -> str:
    return f"````{language}\n{text.strip()}\n````\n"


def table(figures: dict) -> str:
    rows = f"MB | {' | '.join(COLUMNS.values())}\n---|---:|---:|---:\n"
    for allocator in ("glibc", "ebbmalloc"):
        rows += f"{allocator} | {' | '.join(cell(figures[allocator][column]) for column in COLUMNS)}\n"
    versions = ", ".join(f"{name} {number}" for name, number in figures["versions"].items())
    runs = f"{figures['runs']} run{'s' if figures['runs'] > 1 else ''} of each"
    return (f"{rows}\n{figures['burst']}; {figures['metric']}. {versions}. "
            f"`{figures['command']}`, {figures['date']}, {figures['machine']}, {runs}.\n")


def cell(values: list[float]) -> str:
    """Median, lowest, highest."""
    median, lowest, highest = (f"{value:#.3g}".rstrip(".") if value < 1000 else f"{value:.0f}" for value in values)
    return median if lowest == highest else f"{median} ({lowest}–{highest})"
