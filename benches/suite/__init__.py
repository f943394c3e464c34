"""Programs x allocators: allocators.py, plans.py, programs.py -> trials.py -> summary.py. Here: what every benchmark needs."""

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
VENV = HERE / ".venv"


def enter() -> None:
    """Goes on in the locked environment that statistics and pictures need, making or refreshing it first; ends without it."""
    if Path(sys.prefix).resolve() == VENV.resolve():
        return
    if subprocess.run([HERE.parent / "ci/python-env.sh", HERE], stdout=sys.stderr).returncode != 0:
        sys.exit(1)
    os.execv(VENV / "bin/python", [str(VENV / "bin/python"), *sys.argv])


def markdown(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def report(text: str, folder: Path | None, kind: str, result: dict) -> None:
    """Prints the tables; with a folder, KIND.md and KIND.json go there too."""
    print(text)
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{kind}.md").write_text(text + "\n")
        (folder / f"{kind}.json").write_text(json.dumps(result, indent=1) + "\n")
