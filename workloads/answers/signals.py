"""How a service of several processes answers a trial: a signal to each of them, a file from each.

A request over the network reaches any one worker. `answer_in` is called once in the first process,
before it forks; `python -m answers.signals trim|live|gc --dir DIR` asks all that live, and prints
the sum for `[live]`. A handler runs in the main thread, between two instructions of the program.
"""

import argparse
from collections.abc import Callable
import gc
import json
import os
from pathlib import Path
import signal
import sys
import time
from types import FrameType

from . import memory

ANSWER_S = 30.0


def _trim() -> dict[str, object]:
    return {"released": memory.trim()}


def _live() -> dict[str, object]:
    try:
        return {"live_bytes": memory.in_use().live_bytes}
    except memory.NotTold as error:
        return {"error": str(error)}


def _gc() -> dict[str, object]:
    return {"unreachable": gc.collect()}


VERBS: dict[str, Callable[[], dict[str, object]]] = {"trim": _trim, "live": _live, "gc": _gc}


def _number(verb: str) -> int:
    return signal.SIGRTMIN + list(VERBS).index(verb)


def answer_in(folder: Path) -> None:
    """Makes this process, and every one that is forked from it, answer in that folder."""

    def present() -> None:
        (folder / f"{os.getpid()}.asked").touch()

    def handler_of(answer: Callable[[], dict[str, object]]) -> Callable[[int, FrameType | None], None]:
        def handle(_number: int, _frame: FrameType | None) -> None:
            written = folder / f"{os.getpid()}.new"
            written.write_text(json.dumps(answer()))
            written.rename(folder / f"{os.getpid()}.answer")

        return handle

    for verb, answer in VERBS.items():
        signal.signal(_number(verb), handler_of(answer))
    os.register_at_fork(after_in_child=present)
    present()


def ask(verb: str, folder: Path) -> dict[int, dict[str, object]]:
    """The answers of all processes that live, by their ids; raises TimeoutError."""
    answers = {}
    for marker in folder.glob("*.asked"):
        pid = int(marker.stem)
        answer = marker.with_suffix(".answer")
        answer.unlink(missing_ok=True)
        try:
            os.kill(pid, _number(verb))
        except ProcessLookupError:
            continue
        until = time.monotonic() + ANSWER_S
        while not answer.exists():
            if time.monotonic() > until:
                raise TimeoutError(f"process {pid} did not answer {verb} in {ANSWER_S:.0f} s")
            time.sleep(0.01)
        answers[pid] = json.loads(answer.read_text())
    return answers


def main() -> int:
    """Asks; 1 where one did not answer, or no process is there."""
    parser = argparse.ArgumentParser(prog="answers.signals", description=__doc__)
    parser.add_argument("verb", choices=list(VERBS))
    parser.add_argument("--dir", type=Path, required=True)
    args = parser.parse_args()
    try:
        answers = ask(args.verb, args.dir)
    except TimeoutError as error:
        print(error, file=sys.stderr)
        return 1
    errors = [answer["error"] for answer in answers.values() if "error" in answer]
    if errors or not answers:
        print(errors[0] if errors else "no process answers", file=sys.stderr)
        return 1
    if args.verb == "live":
        total = sum(int(str(answer["live_bytes"])) for answer in answers.values())
        print(json.dumps({"live_bytes": total, "processes": len(answers)}))
    else:
        print(json.dumps({str(pid): answer for pid, answer in answers.items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
