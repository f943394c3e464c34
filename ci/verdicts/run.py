#!/usr/bin/env python3
"""Asks `ebb why` about real programs in states that are known, and glibc's malloc in each about itself.

    ci/verdicts.sh [--ebb PROGRAM] [--publish] [PATTERN]...

A program of programs.py is started, brought into its state, and looked at. What is true of it was written down before
`ebb why` looked. In each process that has glibc's malloc alone, gdb then calls malloc_info and malloc_trim: live and free
bytes and what the trim returns are compared with what `ebb why` said, and may differ by 2 % of the process or 1 MB.

Results go to target/verdicts.json; --publish writes the lines in docs/proof.md. Status 1 if something is wrong, 3 if gdb
is missing or nobody but root may look. Programs that are not installed are listed and left out.
"""

import argparse
from datetime import date
import fnmatch
import json
import os
from pathlib import Path
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from programs import PATIENCE_S, PROGRAMS, Program

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
PROOF = ROOT / "docs/proof.md"

sys.path.append(str(ROOT / "ci"))
import machine


# --- A program


def descendants(pid: int) -> list[int]:
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            found += map(int, task.read_text().split())
    return found


def resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0


def subject(program: Program, started: subprocess.Popen, folder: Path) -> int:
    """The process to look at."""
    if program.child.startswith("@"):
        return int(Path(program.child[1:].format(dir=folder)).read_text())
    pids = descendants(started.pid)
    if program.child:
        commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace") for pid in pids}
        pids = [pid for pid in pids if program.child in commands[pid] and not commands[pid].startswith("sh -c")]
    else:
        pids = pids[:1]
    return max(pids, key=resident)


def await_ready(program: Program, started: subprocess.Popen, port: int, output: Path) -> None:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        if started.poll() is not None:
            raise RuntimeError(f"it ended with {started.returncode}: {output.read_text(errors='replace')[-400:]}")
        if program.ready and program.ready in output.read_text(errors="replace").split():
            return
        if not program.ready:
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", port)) == 0:
                    return
        time.sleep(0.1)
    raise RuntimeError(f"not ready after {PATIENCE_S} s: {output.read_text(errors='replace')[-400:]}")


GDB = """set pagination off
set confirm off
shell cp /proc/%d/smaps_rollup %s.before
set $file = (void*)fopen("%s", "w")
call (int)malloc_info(0, $file)
call (int)fclose($file)
call (int)malloc_trim(0)
shell cp /proc/%d/smaps_rollup %s.after
"""


def anonymous(rollup: Path) -> int:
    return 1024 * int(re.search(r"^Anonymous: +(\d+) kB", rollup.read_text(), re.MULTILINE).group(1))


def from_inside(pid: int, folder: Path) -> dict:
    """What glibc's malloc says of itself, and what a trim of it returns."""
    script, info = folder / "gdb", folder / "info"
    script.write_text(GDB % (pid, info, info, pid, info))
    done = subprocess.run(["gdb", "-q", "-nx", "-batch", "-p", str(pid), "-x", str(script)], capture_output=True, text=True, timeout=PATIENCE_S)
    if not Path(f"{info}.after").exists():
        raise RuntimeError(f"gdb: {done.stderr[-400:]}")
    text = info.read_text()
    whole = text.rpartition("</heap>")[2]

    def total(kind: str) -> int:
        return int(re.search(rf'type="{kind}"[^>]* size="(\d+)"', whole).group(1))

    free = total("fast") + total("rest")
    return {
        "free": free,
        "live": total("current") - free + total("mmap"),
        "trim": anonymous(Path(f"{info}.before")) - anonymous(Path(f"{info}.after")),
    }


def look(ebb: Path, pid: int) -> dict:
    done = subprocess.run([ebb, "why", "--no-children", "--json", str(pid)], capture_output=True, text=True, timeout=PATIENCE_S)
    if not done.stdout:
        raise RuntimeError(f"ebb why: {done.stderr[-400:]}")
    told = json.loads(done.stdout)[0]
    process = told["snapshot"]["processes"][0]
    heap = process.get("heap") or {}
    return {
        "verdict": told["verdict"]["kind"],
        "main": told["verdict"]["main"],
        "sentence": told["verdict"]["sentence"],
        "total": told["ledger"]["total"],
        "reader": heap.get("reader") if not process.get("pool") else None,
        "heap": {name: heap[name] for name in ("live", "trimmable", "tops", "pinned", "cached", "free_not_resident", "resident") if name in heap},
    }


def untouched(pid: int) -> int:
    """Bytes of private writable memory without a page: what was allocated and never written."""
    found = re.findall(r"^\S+ rw-p [^\n]*\nSize: +(\d+) kB\n(?:.*\n)*?Rss: +(\d+) kB", Path(f"/proc/{pid}/smaps").read_text(), re.MULTILINE)
    return 1024 * sum(int(size) - int(rss) for size, rss in found)


def said_of(heap: dict) -> dict[str, int]:
    """Blocks in the threads' caches are live for malloc_info."""
    return {
        "live": heap["live"] + heap["cached"],
        "free": sum(heap[name] for name in ("trimmable", "tops", "pinned", "free_not_resident")),
        "trim": heap["trimmable"],
    }


def figures_wrong(said: dict, inside: dict) -> list[str]:
    """Where what `ebb why` said differs from what the process says. Live blocks that were never written are not resident."""
    ours, allowed = said_of(said["heap"]), max(said["total"] // 50, 1 << 20)
    below = {"live": inside["untouched"], "free": 0, "trim": 0}
    return [f"{name}: said {ours[name]}, is {inside[name]}" for name in ours
            if not -allowed - below[name] <= ours[name] - inside[name] <= allowed]


def words(program: Program, port: int, folder: Path) -> list[str]:
    fields = {"port": port, "dir": folder}
    command = [word.replace("''", "").format(**fields) for word in program.command.split(" ")]
    return command + ([program.script.format(**fields)] if program.script else [])


def examine(program: Program, ebb: Path) -> dict:
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), machine.free_port()
        folder.chmod(0o777)
        output = folder / "output"
        with output.open("w") as file:
            started = subprocess.Popen(words(program, port, folder), stdin=subprocess.PIPE, stdout=file, stderr=subprocess.STDOUT,
                                       start_new_session=True, env=os.environ | {"HOME": name})
        pid = started.pid
        try:
            await_ready(program, started, port, output)
            if program.load:
                program.load(port, folder)
            time.sleep(program.settle_s)
            pid = subject(program, started, folder)
            said = look(ebb, pid)
            wrong = []
            expected, cause = (program.says, "") if program.says else (program.verdict, program.main)
            if said["verdict"] != expected or cause and said["main"] != cause:
                wrong.append(f"expected {expected} {cause}: {said['sentence']}")
            # If the process has another allocator too, malloc_info knows a part only.
            if re.fullmatch(r"glibc [\d.]+", said["reader"] or ""):
                said["inside"] = {"untouched": untouched(pid)} | from_inside(pid, folder)
                wrong += figures_wrong(said, said["inside"])
            return {"name": program.name, "true": program.verdict, "because": program.because, **said, "wrong": wrong}
        finally:
            for leader in {started.pid, pid}:
                for one in descendants(leader):
                    try:
                        os.kill(one, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
            started.wait()


# --- Results


def installed(program: Program) -> bool:
    """Whether all programs that the command starts are there."""
    named = {program.command.split(" ")[0], *re.findall(r"exec ([\w/.-]+)", program.script), *re.findall(r"^[^(]*\) \| (\w+)", program.script)}
    return all(shutil.which(name) for name in named)


def worst(results: list[dict]) -> str:
    """The largest differences, in percent of the process."""
    shares = {}
    for result in results:
        for name, ours in said_of(result["heap"]).items() if "inside" in result else ():
            over = ours - result["inside"][name]
            # Live blocks that were never written are not resident.
            over = min(over + result["inside"]["untouched"], 0) or max(over, 0) if name == "live" else over
            shares[name] = max(shares.get(name, 0), 100 * abs(over) / result["total"])
    return ", ".join(f"{share:.1f} % ({name})" for name, share in shares.items())


def report(results: list[dict], commit: str) -> str:
    right = [it for it in results if it["verdict"] == it["true"]]
    inside = [it for it in results if "inside" in it]
    lines = [
        f"{len(right)} of {len(results)} right. In the {len(inside)} that have glibc's malloc alone, live, free and trimmable bytes differ from "
        f"what malloc_info says and malloc_trim returns by at most {worst(results)} of the process. Not right:",
        "",
        *(f"- {it['name']}: said {it['verdict']}; {it['because']}." for it in results if it not in right),
        "",
        f"`ci/verdicts.sh`, {date.today().isoformat()}, {machine.processors()}, {machine.kernel()}, commit {commit}.",
    ]
    return "\n".join(lines)


def publish(text: str) -> None:
    page = PROOF.read_text()
    begin, end = "<!-- verdicts: written by ci/verdicts.sh -->\n", "<!-- end of verdicts -->"
    before, _, rest = page.partition(begin)
    PROOF.write_text(before + begin + text + "\n" + end + rest.partition(end)[2])


def main() -> int:
    parser = argparse.ArgumentParser(usage="ci/verdicts.sh [--ebb PROGRAM] [--publish] [PATTERN]...")
    parser.add_argument("--ebb", type=Path, default=TARGET / "release/ebb")
    parser.add_argument("--publish", action="store_true")
    parser.add_argument("patterns", nargs="*", default=["*"])
    arguments = parser.parse_args()
    if not shutil.which("gdb") or os.geteuid() != 0:
        print("verdicts.sh: needs gdb, and root, whose servers run as other users", file=sys.stderr)
        return 3
    results = []
    for program in PROGRAMS:
        if not any(fnmatch.fnmatch(program.name, pattern) for pattern in arguments.patterns):
            continue
        if not installed(program):
            print(f"not installed: {program.name}", flush=True)
            continue
        try:
            result = examine(program, arguments.ebb)
        except (RuntimeError, OSError, subprocess.SubprocessError, ValueError) as error:
            result = {"name": program.name, "wrong": [f"{type(error).__name__}: {error}"]}
        results.append(result)
        print("wrong" if result["wrong"] else "as expected", program.name, result.get("sentence", ""), *result["wrong"], sep="\n    ", flush=True)
    TARGET.mkdir(parents=True, exist_ok=True)
    (TARGET / "verdicts.json").write_text(json.dumps(results, indent=1) + "\n")
    failed = [it["name"] for it in results if it["wrong"]]
    if failed:
        print(f"{len(failed)} of {len(results)} not as expected: {', '.join(failed)}")
        return 1
    text = report(results, machine.commit_of(arguments.ebb))
    print(text)
    if arguments.publish:
        publish(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
