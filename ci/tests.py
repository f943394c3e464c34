#!/usr/bin/env python3
"""Builds the crates' tests at once and runs the test programs side by side.

    ci/tests.py [--lanes N] [--build] [CARGO OPTION]...     as for `cargo test`: --release -p ebbmalloc-c

Each lane takes the next program when its last one has ended, the longest first; a program has as many threads as there are
processors. Files under `target/tmp` have names of their process, so any two programs may run at once. Each program's output is
printed when it ends. The time of each test is added to `target/times.tsv`, which `ci/report.py` prints.

--build     only builds
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
CARGO = os.environ.get("CARGO", "cargo")
# Programs that take 10 s or more on two idle processors, the longest first: started last, they would leave a lane idle.
LONGEST = "preload compare live why look jemalloc page sure limits again glibc ebbmalloc_core trim advice fix".split()
TIME = re.compile(r"^test (.+?) \.\.\. .*<([0-9.]+)s>$", re.MULTILINE)


def built(options):
    """Folder, name and file of each test program, in cargo's order."""
    command = [CARGO, "test", "--no-run", "--message-format=json-render-diagnostics", *options]
    # No status but 0 is left to explain: cargo has said on stderr what does not compile.
    done = subprocess.run(command, cwd=ROOT, text=True, stdout=subprocess.PIPE)
    if done.returncode:
        sys.exit(done.returncode)
    messages = (json.loads(line) for line in done.stdout.splitlines())
    tests = [m for m in messages if m.get("executable") and m["profile"]["test"]]
    return [(pathlib.Path(m["manifest_path"]).parent, m["target"]["name"], m["executable"]) for m in tests]


class Run:
    def __init__(self):
        self.lock = threading.Lock()
        self.failed = []

    def program(self, folder, name, executable):
        """As cargo runs it, with a time after each test: an option of the harness that only this variable opens."""
        environment = os.environ | {"CARGO": CARGO, "CARGO_MANIFEST_DIR": str(folder), "RUSTC_BOOTSTRAP": "1"}
        # A make or cargo that a test starts takes no part in this make's -j.
        for of_make in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL"):
            environment.pop(of_make, None)
        command = [executable, "-Zunstable-options", "--report-time"]
        start = time.monotonic()
        child = subprocess.Popen(command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        output = child.stdout.read()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        wall = time.monotonic() - start
        title = f"{folder.name} {name}"
        with self.lock:
            print(f"\n== {title}: {wall:.1f} s, {used.ru_utime + used.ru_stime:.1f} s of processor time\n{output}", flush=True)
            with open(TARGET / "times.tsv", "a") as times:
                times.write("".join(f"{seconds}\t{title}::{test}\n" for test, seconds in TIME.findall(output)))
            if child.returncode:
                self.failed.append(title)

    def lane(self, queue):
        while True:
            with self.lock:
                if not queue:
                    return
                program = queue.pop(0)
            self.program(*program)


def rank(program):
    """The place of a program in the queue."""
    name = program[1]
    return LONGEST.index(name) if name in LONGEST else len(LONGEST)


def main():
    parser = argparse.ArgumentParser(usage="ci/tests.py [--lanes N] [--build] [CARGO OPTION]...")
    parser.add_argument("--lanes", type=int, default=2)
    parser.add_argument("--build", action="store_true")
    arguments, options = parser.parse_known_args()
    queue = sorted(built(options), key=rank)
    if arguments.build:
        return
    run = Run()
    threads = [threading.Thread(target=run.lane, args=(queue,)) for _ in range(arguments.lanes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if run.failed:
        sys.exit(f"tests.py: failed: {', '.join(run.failed)}")


if __name__ == "__main__":
    main()
