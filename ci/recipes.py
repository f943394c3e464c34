#!/usr/bin/env python3
"""Runs the recipes of docs/recipes on the real programs, under glibc and under ebbmalloc.

    ci/recipes.py [NAME]...           measures, and writes docs/recipes/results.json
    ci/recipes.py --check [NAME]...   only tests that ebbmalloc is in charge of every process

Needs `make build` before it. INSTALL=1 installs missing Debian packages; a recipe that lacks one, or what another registry
has, is skipped and listed. Status 1 if a recipe failed, 3 if all were skipped.

docs/recipes/NAME/recipe.toml has:

    title        the program
    lines        what a user types or writes: text, with its comments
    expect       one or two sentences: what changes
    trap         one or two sentences: the program's own trap
    files        files of the folder that a reader should see

    packages     Debian packages, of ci/packages.txt
    root         whether only root can run it
    fetch        commands that need a registry: one that fails is a reason to skip
    setup        commands before each start
    beside       a program that runs beside the service, on glibc

    [service]
    start        the command that is started; `start_glibc` where glibc's differs
    preload      "run" (default): by `ebb run`; "environment": by LD_PRELOAD, as a service manager sets it; "own": by `setup` and
                 `start` themselves
    processes    how many must run at least, all on ebbmalloc
    ready        a command that succeeds once the service can be used, instead of a connection to $PORT
    pid_file     of a service that goes into the background

    [burst]
    about        the load in words
    path, requests, at_once   an HTTP load: `path` may contain {i}; or
    command      a program that prints a line when the burst is over; it is ended after the last look

    [restart]    the program's own way to start anew: `command`, and `processes` to expect after it, all on ebbmalloc
    [mistake]    the trap, shown: `start`, `preload`, a command `after` the start, and the `finding` of `ebb check`
    [versions]   program = a command that prints its version

Commands run by sh in a copy of the folder, with $PORT, $OTHER (a second port), $SCRATCH (an empty folder), $LIBRARY, $EBB and
$PID (of the service). results.json has of each:

    date, machine, command, versions, runs
    burst        the load in words
    metric       what the figures are
    glibc, ebbmalloc   of each: before_mb, peak_mb, after_5s_mb: [median, lowest, highest]
    in_charge    program = number of its processes that run on ebbmalloc
    helps        whether 5 s after the burst a tenth less is resident, in each run
    sentence     that in words
"""

import argparse
import collections
import concurrent.futures
import contextlib
import datetime
import http.client
import json
import os
import platform
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from pathlib import Path

import machine

ROOT = Path(__file__).resolve().parent.parent
RECIPES = ROOT / "docs/recipes"
RESULTS = RECIPES / "results.json"
sys.path.append(str(ROOT / "workloads"))
from answers.needs import record  # noqa: E402
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
METRIC = "RSS of all processes of the service, in MB of 10^6 bytes, shared pages counted in each: median, lowest, highest"
PAGE = os.sysconf("SC_PAGESIZE")
READY_S = 60
SETTLE_S = 5


class Skip(Exception):
    """What a recipe needs cannot be had: kind (package or reason), and what."""


class Failure(Exception):
    pass


def tree(pid):
    """The process and its descendants."""
    children = collections.defaultdict(list)
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            children[int((folder / "stat").read_text().rpartition(")")[2].split()[1])].append(int(folder.name))
    found = [pid]
    for each in found:
        found += children[each]
    return found


def resident_mb(pid):
    total = 0
    for each in tree(pid):
        with contextlib.suppress(OSError):
            total += int(Path(f"/proc/{each}/statm").read_text().split()[1])
    return total * PAGE / 1e6


class Recipe:
    def __init__(self, name, built):
        self.name = name
        self.source = RECIPES / name
        self.told = tomllib.loads((self.source / "recipe.toml").read_text())
        self.folder = TARGET / "recipes" / name
        self.ebb = built / "ebb"
        self.library = built / "libebbmalloc.so"

    def prepare(self):
        """Installs what is missing, and copies the folder."""
        if self.told.get("root") and os.geteuid() != 0:
            raise Skip("reason", ["root's rights"])
        install = ROOT / "ci/install.sh"
        packages = self.told.get("packages", [])
        subprocess.run([install, "--optional", *packages], stdin=subprocess.DEVNULL)
        missing = subprocess.run([install, "--list", *packages], capture_output=True, text=True).stdout.split()
        if missing:
            raise Skip("package", missing)
        shutil.copytree(self.source, self.folder, dirs_exist_ok=True)
        # Without the Python environment, which one of them makes.
        environment = self.environment("/nowhere") | {"PATH": os.environ["PATH"]}
        for command in self.told.get("fetch", []):
            if subprocess.run(command, shell=True, cwd=self.folder, env=environment, stdout=sys.stderr).returncode != 0:
                raise Skip("reason", [f"a network: `{command}` failed"])

    def environment(self, scratch):
        inherited = {key: os.environ[key] for key in ("HOME", "LANG", "CARGO_HOME", "RUSTUP_HOME") if key in os.environ}
        inherited |= {key: value for key, value in os.environ.items() if key.lower().endswith(("_proxy", "_index_url"))}
        return inherited | {
            "PATH": f"{RECIPES}/.venv/bin:{os.environ['PATH']}:/usr/sbin:/sbin",
            "PYTHONDONTWRITEBYTECODE": "1",
            "ROOT": str(ROOT),
            "SOURCE": str(self.source),
            "BUILT": str(TARGET),
            "EBB": str(self.ebb),
            "EBB_LIB": f"{scratch}/lib/libebbmalloc.so",
            "LIBRARY": f"{scratch}/lib/libebbmalloc.so",
            "SCRATCH": str(scratch),
            "PORT": str(machine.free_port()),
            "OTHER": str(machine.free_port()),
        }

    @contextlib.contextmanager
    def service(self, allocator, start=None, preload=None):
        """A started service that is ready; ends it and all that it started."""
        told = self.told["service"]
        start = start or (told.get("start_glibc") if allocator == "glibc" else None) or told["start"]
        preload = preload or told.get("preload", "run")
        with tempfile.TemporaryDirectory(prefix="recipe-") as scratch, contextlib.ExitStack() as stack:
            # Readable for the users that services change to, as /usr/local/lib is.
            Path(scratch).chmod(0o755)
            Path(scratch, "lib").mkdir()
            shutil.copy(self.library, f"{scratch}/lib")
            log = stack.enter_context(open(f"{scratch}/log", "w+"))
            running = Service(self.folder, self.environment(scratch) | {"ALLOCATOR": allocator}, log)
            try:
                for command in self.told.get("setup", []):
                    running.succeed(command)
                if beside := self.told.get("beside"):
                    stack.callback(running.end, running.begin(f"exec {beside}"))
                if preload == "run":
                    start = f'exec "$EBB" run -a {allocator} -- {start}'
                elif preload == "environment" and allocator == "ebbmalloc":
                    start = f'LD_PRELOAD="$LIBRARY" exec {start}'
                else:
                    start = f"exec {start}"
                child = running.begin(start)
                stack.callback(running.end, child)
                running.wait_until_ready(child, told.get("ready"), told.get("pid_file"))
                yield running
            except Failure as failure:
                log.seek(0)
                raise Failure(f"{failure}\n{log.read()[-4000:]}") from None

    def check(self, running, processes):
        """What `ebb check` says, once so many processes run: the number of processes by program."""
        deadline = time.monotonic() + READY_S
        while len(tree(running.pid)) < processes and time.monotonic() < deadline:
            time.sleep(0.2)
        while True:
            said = running.ebb_check()
            read = said["processes"]
            if said["in_charge"] and len(read) >= processes:
                break
            if time.monotonic() > deadline:
                raise Failure(f"not in charge of {processes} processes: {json.dumps(said)}")
            time.sleep(1)
        counted = collections.Counter(Path(each["program"]).name for each in read if each["allocator"] == "ebbmalloc")
        # A second reader that does not trust the environment.
        why = subprocess.run(
            [self.ebb, "why", "--json", str(running.pid)], capture_output=True, text=True, env=running.environment
        )
        if "ebbmalloc" not in why.stdout:
            raise Failure(f"ebb why does not see ebbmalloc: {why.stdout[:1000]}{why.stderr}")
        return dict(sorted(counted.items()))

    def check_all(self):
        """In charge after the start, after the program's own restart, and not in charge with the mistake."""
        told = self.told
        with self.service("ebbmalloc") as running:
            counted = self.check(running, told["service"]["processes"])
            running.burst(told["burst"], few=True)
            if restart := told.get("restart"):
                before = set(tree(running.pid))
                running.succeed(restart["command"])
                running.wait_until_ready(None, told["service"].get("ready"), told["service"].get("pid_file"))
                self.check(running, restart["processes"])
                if set(tree(running.pid)) <= before:
                    raise Failure("it did not start anew")
        if mistake := told.get("mistake"):
            with self.service("ebbmalloc", mistake["start"], mistake["preload"]) as running:
                if "after" in mistake:
                    running.succeed(mistake["after"])
                deadline = time.monotonic() + READY_S
                while mistake["finding"] not in (ids := [each["id"] for each in running.ebb_check()["findings"]]):
                    if time.monotonic() > deadline:
                        raise Failure(f"the mistake is not found: {ids}")
                    time.sleep(1)
        return counted

    def measure(self, runs):
        figures = {"glibc": [], "ebbmalloc": []}
        counted = {}
        for _ in range(runs):
            for allocator, rows in figures.items():
                with self.service(allocator) as running:
                    if allocator == "ebbmalloc":
                        counted = self.check(running, self.told["service"]["processes"])
                    else:
                        time.sleep(2)
                    rows.append(running.figures(self.told["burst"]))
                print(f"  {allocator}: {' '.join(f'{value:.1f}' for value in rows[-1])} MB", file=sys.stderr)
        return self.result(figures, counted, runs)

    def result(self, figures, counted, runs):
        def column(rows, index):
            values = [row[index] for row in rows]
            return [round(value, 1) for value in (statistics.median(values), min(values), max(values))]

        names = ("before_mb", "peak_mb", "after_5s_mb")
        kept = {who: {name: column(rows, i) for i, name in enumerate(names)} for who, rows in figures.items()}
        glibc, ours = kept["glibc"]["after_5s_mb"], kept["ebbmalloc"]["after_5s_mb"]
        helps = ours[2] < 0.9 * glibc[1]
        words = f"5 s after the burst {ours[0]:.0f} MB are resident with ebbmalloc, {glibc[0]:.0f} MB with glibc."
        return {
            "date": datetime.date.today().isoformat(),
            "machine": described(),
            "command": f"ci/recipes.py {self.name}",
            "versions": self.versions(),
            "runs": runs,
            "burst": self.told["burst"]["about"],
            "metric": METRIC,
            **kept,
            "in_charge": counted,
            "helps": helps,
            "sentence": words if helps else f"ebbmalloc brings little here. {words}",
        }

    def versions(self):
        environment = self.environment("/nowhere")
        commands = self.told["versions"] | {"ebbmalloc": '"$EBB" --version'}
        found = {}
        for program, command in commands.items():
            said = subprocess.run(
                command, shell=True, cwd=self.folder, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL
            )
            number = re.search(r"\d+(\.\d+)+", said.stdout + said.stderr)
            if not number:
                raise Failure(f"`{command}` prints no version: {said.stdout}{said.stderr}")
            found[program] = number[0]
        return found | {"glibc": platform.libc_ver()[1]}


class Service:
    def __init__(self, folder, environment, log):
        self.folder, self.environment, self.log = folder, environment, log
        self.pid = None
        self.masters = set()

    def begin(self, command, **options):
        self.log.write(f"$ {command}\n")
        self.log.flush()
        return subprocess.Popen(
            command, shell=True, cwd=self.folder, env=self.environment, start_new_session=True,
            **{"stdin": subprocess.DEVNULL, "stdout": self.log, "stderr": self.log} | options,
        )

    def succeed(self, command):
        if (status := self.begin(command).wait(600)) != 0:
            raise Failure(f"`{command}` ends with status {status}")

    def end(self, child):
        """A service that went into the background is no child any more; after an upgrade it has two masters."""
        roots = {child.pid} if child.poll() is None else set()
        doomed = {pid for root in roots | self.masters for pid in tree(root)}
        self.masters = set()
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in doomed:
                with contextlib.suppress(OSError):
                    os.kill(pid, number)
            deadline = time.monotonic() + 10
            while time.monotonic() < deadline and any(is_running(pid) for pid in doomed):
                child.poll()
                time.sleep(0.05)
        child.wait(10)

    def is_ready(self, ready):
        if ready:
            return self.begin(ready).wait() == 0
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", int(self.environment["PORT"]))) == 0

    def wait_until_ready(self, child, ready, pid_file):
        deadline = time.monotonic() + READY_S
        while not self.is_ready(ready):
            if child and child.poll() not in (None, *([0] if pid_file else [])):
                raise Failure(f"the service ended with status {child.returncode}")
            if time.monotonic() > deadline:
                raise Failure("the service is not ready")
            time.sleep(0.2)
        if pid_file:
            file = Path(pid_file.replace("$SCRATCH", self.environment["SCRATCH"]))
            self.pid = int(file.read_text().split()[0])
        elif child:
            self.pid = child.pid
        self.environment["PID"] = str(self.pid)
        self.masters.add(self.pid)

    def ebb_check(self):
        command = [self.environment["EBB"], "check", "-a", "ebbmalloc", "--json", str(self.pid)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        if not done.stdout:
            raise Failure(f"ebb check: {done.stderr}")
        return json.loads(done.stdout)

    def burst(self, told, few=False):
        if "command" in told:
            child = self.begin(f"exec {told['command']}", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            if not child.stdout.readline():
                raise Failure(f"`{told['command']}` ends with status {child.wait()} before the burst is over")
            return child
        with concurrent.futures.ThreadPoolExecutor(told["at_once"]) as pool:
            requests = min(8, told["requests"]) if few else told["requests"]
            list(pool.map(self.get, (told["path"].replace("{i}", str(i)) for i in range(requests))))
        return None

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", int(self.environment["PORT"]), timeout=600)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            answer.read()
        except OSError as error:
            raise Failure(f"GET {path}: {error}") from None
        finally:
            connection.close()
        if answer.status != 200:
            raise Failure(f"GET {path}: status {answer.status}")

    def figures(self, told):
        """Resident MB before the burst, at most, and some seconds after it."""
        before = peak = resident_mb(self.pid)
        over = threading.Event()

        def look():
            nonlocal peak
            while not over.wait(0.2):
                peak = max(peak, resident_mb(self.pid))

        looking = threading.Thread(target=look)
        looking.start()
        try:
            child = self.burst(told)
        finally:
            over.set()
            looking.join()
        time.sleep(SETTLE_S)
        after = resident_mb(self.pid)
        if child:
            child.stdin.close()
            self.end_burst(child)
        return before, peak, after

    @staticmethod
    def end_burst(child):
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def described():
    memory = os.sysconf("SC_PHYS_PAGES") * PAGE / 1e9
    system = platform.freedesktop_os_release()["PRETTY_NAME"]
    return f"{machine.processors()}, {memory:.1f} GB, {system}, {machine.kernel()}"


def publish(name, result):
    """Puts it into the file of all, which has one figure on each line."""
    results = json.loads(RESULTS.read_text()) | {name: result}
    of = {name: ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in told.items()) for name, told in results.items()}
    RESULTS.write_text("{\n" + ",\n".join(f" {json.dumps(name)}: {{\n{of[name]}\n }}" for name in sorted(of)) + "\n}\n")


def main():
    names = sorted(path.parent.name for path in RECIPES.glob("*/recipe.toml"))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(names)}")
    parser.add_argument("--check", action="store_true", help="only test that ebbmalloc is in charge")
    parser.add_argument("--runs", type=int, default=3, help="measure so often (default: 3)")
    parser.add_argument("--built", type=Path, default=TARGET / "release", help="the folder with ebb and libebbmalloc.so")
    given = parser.parse_args()
    if unknown := set(given.names) - set(names):
        parser.error(f"no such recipe: {' '.join(sorted(unknown))}")
    outcomes = collections.Counter()
    for name in given.names or names:
        recipe = Recipe(name, given.built.resolve())
        try:
            recipe.prepare()
            if given.check:
                counted = recipe.check_all()
                words = ", ".join(f"{count} {program}" for program, count in counted.items())
                print(f"{name}: ebbmalloc is in charge of {words}", flush=True)
            else:
                result = recipe.measure(given.runs)
                publish(name, result)
                print(f"{name}: {result['sentence']}", flush=True)
            outcomes["passed"] += 1
        except Skip as skip:
            kind, whats = skip.args
            for what in whats:
                record(kind, what, f"recipe {name}")
            print(f"{name}: skipped, it needs {' '.join(skip.args[1])}", flush=True)
            outcomes["failed" if os.environ.get("EBB_REQUIRE_ALL") == "1" else "skipped"] += 1
        except (Failure, subprocess.SubprocessError) as failure:
            print(f"{name}: FAILED: {failure}", flush=True)
            outcomes["failed"] += 1
    print(", ".join(f"{outcomes[outcome]} {outcome}" for outcome in ("passed", "failed", "skipped")))
    return 1 if outcomes["failed"] else 0 if outcomes["passed"] else 3


if __name__ == "__main__":
    sys.exit(main())
