#!/usr/bin/env python3
"""How long a process waits for its own mmap, munmap and page faults while it is looked at.

    benches/looks/stalls.py [--gib N] [--looks N] [-o FILE] -- COMMAND...

COMMAND looks once at the process whose number follows it: `target/release/ebb snap -o /dev/null`. Two targets (stalled.c): one mapping of
N GiB in small pages, and 50,000 mappings. Prints the longest wait without a look and during each look. Needs gcc, and nothing else that
runs on the machine.
"""

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path

SOURCE = Path(__file__).with_name("stalled.c")


def ask(target):
    target.stdin.write("\n")
    target.stdin.flush()
    longest_map, longest_fault, rounds = target.stdout.readline().split()
    return {"mmap_ms": int(longest_map) / 1e3, "fault_ms": int(longest_fault) / 1e3, "rounds": int(rounds)}


def measure(program, size, mappings, command, looks):
    words = [program, str(size), str(mappings)]
    target = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert target.stdout.readline() == "ready\n"
        ask(target)
        time.sleep(3)
        alone, during = ask(target), []
        for _ in range(looks):
            begin = time.monotonic()
            said = subprocess.run([*command, str(target.pid)], capture_output=True, text=True)
            look = {**ask(target), "look_s": round(time.monotonic() - begin, 3)}
            assert said.returncode in (0, 10), said
            during.append(look)
        return {"bytes": size, "mappings": mappings, "alone": alone, "looks": during}
    finally:
        target.kill()
        target.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gib", type=float, default=8)
    parser.add_argument("--looks", type=int, default=10)
    parser.add_argument("-o", "--out")
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/stalled"
        subprocess.run(["gcc", "-O1", "-pthread", "-o", program, SOURCE], check=True)
        for size, mappings in [(int(args.gib * (1 << 30)), 0), (0, 50_000)]:
            result = measure(program, size, mappings, args.command, args.looks)
            worst = {key: max(look[key] for look in result["looks"]) for key in ("mmap_ms", "fault_ms", "look_s")}
            print(f"{size / (1 << 30):.0f} GiB, {mappings} mappings: alone {result['alone']}, worst of {args.looks} looks {worst}")
            results.append(result)
    if args.out:
        Path(args.out).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
