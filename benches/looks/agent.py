#!/usr/bin/env python3
"""What `ebb agent` costs on a machine with many containers.

    benches/looks/agent.py [--services N] [--minutes M] [-o FILE] [AGENT]

Starts N Python services of 20 MB, each in a cgroup of its own, and AGENT (target/release/ebb) with its default budget. Each minute it
prints the agent's processor time and resident memory, as the kernel counts them, and how many looks it has taken. Needs root, a mounted
memory cgroup, and nothing else that runs on the machine.
"""

import argparse
import datetime
import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))

from suite import machine

SERVICE = "import json, time; kept = [str(number) * 3 for number in range(60_000)]; print(flush=True); time.sleep(1 << 20)"
ADDRESS = "127.0.0.1:9199"
TICKS = os.sysconf("SC_CLK_TCK")


def hierarchy():
    """The folder in which memory cgroups are made."""
    for folder in (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")):
        if (folder / "cgroup.procs").exists():
            return folder
    sys.exit("agent.py: no memory cgroup is mounted below /sys/fs/cgroup")


def figures(pid, services):
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    with urllib.request.urlopen(f"http://{ADDRESS}/metrics") as page:
        text = page.read().decode()
    looks = next(line.split()[1] for line in text.splitlines() if line.startswith("ebb_agent_looks_total"))
    known = sum(line.startswith("ebb_group_live_bytes{") and "ebb-service-" in line for line in text.splitlines())
    return {
        "cpu_s": (int(stat[11]) + int(stat[12])) / TICKS,
        "peak_mb": int(status["VmHWM"].split()[0]) * 1024 / 1e6,
        "looks": int(looks),
        "known": f"{known} of {services}",
        "page_bytes": len(text),
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--services", type=int, default=100)
    parser.add_argument("--minutes", type=int, default=20)
    parser.add_argument("-o", "--out")
    parser.add_argument("agent", nargs="?", default="target/release/ebb")
    args = parser.parse_args()
    folders = [hierarchy() / f"ebb-service-{number}" for number in range(args.services)]
    running, minutes = [], []
    try:
        for folder in folders:
            folder.mkdir()
            service = subprocess.Popen([sys.executable, "-c", SERVICE], stdout=subprocess.PIPE)
            running.append(service)
            (folder / "cgroup.procs").write_text(str(service.pid))
        for service in running:
            service.stdout.readline()
        agent = subprocess.Popen([args.agent, "agent", "--listen", ADDRESS])
        running.append(agent)
        begin = time.monotonic()
        for minute in range(1, args.minutes + 1):
            time.sleep(max(0.0, begin + 60 * minute - time.monotonic()))
            minutes.append(figures(agent.pid, args.services))
            share = minutes[-1]["cpu_s"] / (60 * minute)
            print(f"minute {minute}: {share:.2%} of a core since the start, {minutes[-1]}", flush=True)
    finally:
        for process in running:
            process.kill()
            process.wait()
        for folder in folders:
            if folder.exists():
                folder.rmdir()
    if args.out:
        command = f"benches/looks/agent.py --services {args.services} --minutes {args.minutes}"
        result = {"command": command, "date": str(datetime.date.today()), "machine": machine.describe(), "minutes": minutes}
        Path(args.out).write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
