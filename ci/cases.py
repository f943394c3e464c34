#!/usr/bin/env python3
"""Runs the commands of docs/cases on the services of workloads/.

    ci/cases.py [NAME]...           compares what they print with what the pages expect
    ci/cases.py --write [NAME]...   also puts what they print into the pages

Needs `make build` before it, and minutes for each page. Status 1 if a page failed.

All commands of a page run in one bash, in a folder that has only `workloads`, with the built `ebb` on PATH, $ROOT (the repository), $PORT and
$OTHER (two free ports). In a page:

    ```sh           commands that a reader types. A block ```text after it has what they print on stdout
    <!-- run:       commands that a reader need not see. ci/cases.sh has the services
    <!-- keep:      a regular expression: of the block below it, only paragraphs that begin with it are in the page, without the
                    frames of tables
    <!-- expect:    a regular expression that the block above it must match, whatever the figures are
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import machine

ROOT = Path(__file__).resolve().parent.parent
CASES = ROOT / "docs/cases"
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
# The longest page compares four variants three times, and takes a quarter of an hour on two cores.
LONGEST_S = 3600
PART = re.compile(
    r"<!-- run:\s(?P<hidden>.*?)\s-->|<!-- keep: (?P<keep>.*?) -->|<!-- expect: (?P<expect>.*?) -->"
    r"|```sh\n(?P<shown>.*?)```|```text\n(?P<printed>.*?)```",
    re.DOTALL,
)


def commands(part: re.Match[str]) -> str:
    return (part["hidden"] or part["shown"] or "").strip()


def script(parts: list[re.Match[str]], folder: Path) -> str:
    """One bash for the page: the output of part 3 goes to the file out.3 of `folder`."""
    lines = ["set -u", f". {ROOT}/ci/cases.sh"]
    for number, part in enumerate(parts):
        if commands(part):
            lines.append(f"{{\n{commands(part)}\n}} >{folder}/out.{number} 2>{folder}/err.{number} </dev/null")
    return "\n".join(lines) + "\n"


def run(parts: list[re.Match[str]], folder: Path) -> None:
    """Runs the commands and everything that they start; nothing of it is left afterwards."""
    work = folder / "work"
    work.mkdir()
    (work / "workloads").symlink_to(ROOT / "workloads")
    environment = os.environ | {
        "PATH": f"{TARGET / 'release'}:{os.environ['PATH']}",
        "ROOT": str(ROOT),
        "PORT": str(machine.free_port()),
        "OTHER": str(machine.free_port()),
        "COLUMNS": "110",
    }
    bash = subprocess.Popen(["bash", "-c", script(parts, folder)], cwd=work, env=environment, start_new_session=True)
    try:
        bash.wait(timeout=LONGEST_S)
    finally:
        try:
            os.killpg(bash.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        bash.wait()


def without_paths(text: str, folder: Path) -> str:
    for path, name in ((f"{folder}/work/", ""), (f"{folder}/work", "."), (f"{ROOT}/", ""), (str(Path.home()), "~")):
        text = text.replace(path, name)
    return text


def kept(text: str, first: str | None) -> str:
    """The paragraphs that begin with `first`; an ellipsis stands for others between them."""
    if first is None:
        return text
    lines = []
    text = re.sub(r"^[─═]+\n", "", text, flags=re.MULTILINE)
    for paragraph in text.rstrip().split("\n\n"):
        if re.match(first, paragraph):
            lines.append(paragraph)
        elif lines and lines[-1] != "...":
            lines.append("...")
    return "\n\n".join(lines) + "\n"


def check(page: Path, write: bool) -> list[str]:
    """What is wrong with the page; with `write`, it gets the new output first."""
    text = page.read_text()
    parts = list(PART.finditer(text))
    with tempfile.TemporaryDirectory(prefix="case-") as name:
        folder = Path(name)
        run(parts, folder)
        wrong, pieces, end, last, keep = [], [], 0, "", None
        for number, part in enumerate(parts):
            output = folder / f"out.{number}"
            if output.exists():
                last = without_paths(output.read_text(), folder)
                said = without_paths((folder / f"err.{number}").read_text(), folder)
            elif commands(part):
                return [f"{page.name}: ended before: {commands(part)}"]
            elif part["expect"] and not re.search(part["expect"], " ".join(last.split())):
                wrong.append(f"{page.name}: no {part['expect']!r} in:\n{last}{said}")
            elif part["keep"]:
                keep = part["keep"]
            elif part["printed"] is not None:
                pieces += [text[end : part.start("printed")], kept(last, keep)]
                end, keep = part.end("printed"), None
        pieces.append(text[end:])
    if write:
        page.write_text("".join(pieces))
    return wrong


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--write", action="store_true")
    arguments.add_argument("names", nargs="*", metavar="NAME")
    chosen = arguments.parse_args()
    names = chosen.names or sorted(page.stem for page in CASES.glob("*.md") if page.stem != "README")
    wrong = []
    for name in names:
        page = CASES / f"{name}.md"
        if not page.exists():
            arguments.error(f"there is no page docs/cases/{name}.md")
        wrong += check(page, chosen.write)
        print(f"{name}: {'failed' if wrong else 'passed'}", file=sys.stderr)
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
