"""Programs of others under the allocators: the list in programs.toml, and one run of one.

Each process of a run has `witness.so` behind the allocator, which writes whose malloc the
process has; a run in which any process had another one is discarded. The libc itself is
preloaded too where it is the allocator under trial: a program may bring another.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from . import HERE, VENV, inputs
from .allocators import Allocator

PROGRAMS = HERE / "programs"
PORT = 20379


@dataclass(frozen=True)
class Program:
    name: str
    command: tuple[str, ...]
    version: tuple[str, ...]
    install: str = "the locked environment: ci/python-env.sh benches"
    load: tuple[str, ...] = ()
    environment: dict = field(default_factory=dict)
    # A JSON file in {scratch} that the program writes: its figures are the run's (_reported).
    report: str = ""
    # So often the command runs; wall and CPU time are the means.
    times: int = 1
    # It brings a C library of its own, a newer one say: this machine's must not be preloaded.
    own_libc: bool = False

    def missing(self) -> str | None:
        """Why it cannot run here, or None."""
        for tool in (self.command[0], *self.load[:1]):
            if shutil.which(_filled([tool], Path())[0]) is None:
                return f"{tool} is not installed ({self.install})"
        return None

    def describe(self) -> dict:
        """The version that ran, for the record."""
        try:
            done = subprocess.run(_filled(self.version, Path()), capture_output=True, text=True, timeout=30)
            version = (done.stdout or done.stderr).strip().splitlines()[0]
        except (OSError, IndexError, subprocess.TimeoutExpired):
            version = "not installed"
        return {"name": self.name, "command": as_published(self.command), "version": version}


def as_published(command) -> str:
    """The command as it stands in results: paths relative to the repository, or to the user's home."""
    return " ".join(command).replace(f"{HERE.parent}/", "").replace(f"{Path.home()}/", "~/")


def listed() -> list[Program]:
    """programs.toml in its order; one marked `both_ways` is two, without and with CPython's own allocator."""
    programs = []
    for entry in tomllib.loads((HERE / "programs.toml").read_text())["program"]:
        both_ways = entry.pop("both_ways", False)
        entry = {k: tuple(v) if isinstance(v, list) else v for k, v in entry.items()}
        if both_ways:
            programs.append(Program(**entry, environment={"PYTHONMALLOC": "pymalloc"}))
            entry["name"] += ", PYTHONMALLOC=malloc"
            programs.append(Program(**entry, environment={"PYTHONMALLOC": "malloc"}))
        else:
            programs.append(Program(**entry))
    return programs


def _filled(words, scratch: Path) -> list[str]:
    places = {
        "inputs": str(HERE / "build/inputs"),
        "python": str(VENV / "bin/python") if (VENV / "bin/python").exists() else sys.executable,
        "pyperformance": next((str(p) for p in VENV.glob("lib/*/site-packages/pyperformance/data-files/benchmarks")), ""),
        "scratch": str(scratch),
        "port": str(PORT),
    }
    for name, place in places.items():
        words = [w.replace("{" + name + "}", place) for w in words]
    return list(words)


class RunFailed(Exception):
    """The run gave nothing that may be used; the text says why."""


def run_once(build: Path, program: Program, allocator: Allocator, timeout_s: int) -> dict:
    """One run: wall and CPU seconds, peak, faults; `cpu_s` of a server is its own, not its load's."""
    if program.missing():
        raise RunFailed(program.missing())
    inputs.make_all(HERE / "build/inputs")
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        scratch = Path(name)
        environment = allocator.run_environment() | program.environment
        library = environment.pop("LD_PRELOAD", None) or ("" if program.own_libc else _libc())
        environment["BENCH_WITNESS"] = str(scratch / "witness")
        preload = f"{library} {build / 'witness.so'}"
        times = ["-n", str(program.times)] if program.times > 1 else []
        command = [str(build / "launch"), *times, preload, *_filled(program.command, scratch)]
        run = _serve if program.load else _finish
        result = run(program, command, environment, scratch, timeout_s)
        if program.report:
            result |= _reported(scratch / program.report)
        result["malloc_provider"] = _sole_provider(scratch / "witness", allocator)
    return result


def _finish(_program: Program, command: list[str], environment: dict, scratch: Path, timeout_s: int) -> dict:
    done = subprocess.run(command, env=environment, cwd=scratch, capture_output=True, text=True, timeout=timeout_s)
    if done.returncode != 0:
        raise RunFailed(f"exit {done.returncode}: {' '.join(done.stderr.strip().splitlines()[-1:])}")
    return json.loads(done.stdout)


def _reported(file: Path) -> dict:
    """The figures that a program wrote. Of a file of pyperf, the least value of each benchmark."""
    found = json.loads(file.read_text())
    if "benchmarks" not in found:
        return found
    return {"value_s": sum(min(benchmark["runs"][0]["values"]) for benchmark in found["benchmarks"])}


def _serve(program: Program, command: list[str], environment: dict, scratch: Path, timeout_s: int) -> dict:
    """Wall seconds are the load's, CPU seconds and the peak the server's."""
    server = subprocess.Popen(command, env=environment, cwd=scratch, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        ping = ["redis-cli", "-p", str(PORT), "ping"]
        until = time.monotonic() + 10
        while subprocess.run(ping, capture_output=True, text=True).stdout.strip() != "PONG":
            if time.monotonic() > until or server.poll() is not None:
                raise RunFailed("the server does not answer")
            time.sleep(0.02)
        begun = time.monotonic()
        load = subprocess.run(_filled(program.load, scratch), capture_output=True, text=True, timeout=timeout_s)
        wall_s = time.monotonic() - begun
        subprocess.run([*ping[:3], "shutdown", "nosave"], capture_output=True, timeout=10)
        output, _ = server.communicate(timeout=10)
        if load.returncode != 0 or "rror" in load.stdout:
            raise RunFailed(f"the load failed: {load.stderr.strip()[-200:] or load.stdout[-200:]}")
        rates = [line.split("\r")[-1].strip() for line in load.stdout.splitlines() if "requests per second" in line]
        return json.loads(output) | {"wall_s": wall_s, "rates": rates}
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()


def _libc() -> str:
    """The libc that this interpreter has: where another is in force, its path differs too."""
    maps = Path("/proc/self/maps").read_text().split()
    return next(word for word in maps if "/libc.so" in word or "/libc-2" in word)


def _sole_provider(witness: Path, allocator: Allocator) -> str:
    if not witness.is_file():
        raise RunFailed("discarded: no process loaded what was preloaded")
    lines = [line.split("\t") for line in witness.read_text().splitlines()]
    for program, provider in lines:
        if not allocator.provider_matches(provider):
            raise RunFailed(f"discarded: {os.path.basename(program)} had {os.path.basename(provider)}")
    return os.path.basename(lines[0][1])
