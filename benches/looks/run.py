#!/usr/bin/env python3
"""Looks at the processes of cases.py with `ebb why`, and counts how often it is right.

    benches/looks/run.py [--ebb FILE] [--only WORDS] [--out FOLDER]

A case is started, says in one line what is true of it, is looked at once and ended. Its label is compared with
its own figures first: a case that does not do what its label says is printed as MISLABELLED and not counted.

right      the verdict is the label, and live and held bytes are within 10 % or 8 MB
undecided  not-enough-evidence where there is an answer, or figures that lack what it says it could not tell apart
wrong      another verdict; figures that are further off; shared memory that a look multiplied; what `ebb why` calls
           returnable by malloc_trim against what malloc_trim then returned

Needs gcc; a case whose program, library or right is missing is skipped by name. Run as root for all of them.
"""

import argparse
import glob
import json
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))

from suite import machine

from cases import BOTH, CASES, HELD, OTHER, UNKNOWN, USE

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LIBRARIES = {
    "jemalloc": "/usr/lib/*/libjemalloc.so.2", "mimalloc": "/usr/lib/*/libmimalloc.so.2.0",
    "tcmalloc": "/usr/lib/*/libtcmalloc_minimal.so.4", "ebbmalloc": f"{ROOT}/target/release/libebbmalloc.so",
}
MIMALLOC = "~/.cargo/registry/src/*/libmimalloc-sys-0.1.49/c_src/mimalloc/v3"
PART, NEAR = 0.10, 8_000_000
LEAST, REASON, MOST = 16_000_000, 0.2, 0.5


class Skip(Exception):
    """The machine cannot show a case."""


class Builder:
    """Builds programs at their first use."""

    def __init__(self, folder):
        self.folder = folder
        self.failed = {}

    def built(self, name, *command):
        target = self.folder / name
        if name in self.failed:
            raise Skip(self.failed[name])
        if not target.exists():
            if not shutil.which(command[0]):
                self.failed[name] = f"no {command[0]}"
                raise Skip(self.failed[name])
            words = [str(target) if word == "OUT" else word for word in command]
            done = subprocess.run(words, cwd=HERE, capture_output=True, text=True)
            if done.returncode:
                self.failed[name] = f"{name} does not build: {done.stderr.strip().splitlines()[-1]}"
                raise Skip(self.failed[name])
            target.chmod(0o755)
        return str(target)

    def mimalloc(self):
        found = glob.glob(os.path.expanduser(MIMALLOC))
        if not found:
            raise Skip("no sources of mimalloc 3: cargo fetch in benches/peers")
        return ["-DNDEBUG", "-w", f"-I{found[0]}/include", f"{found[0]}/src/static.c", "-lpthread"]

    def library(self, name):
        if name == "mimalloc3":
            return self.built("libmimalloc3.so", "gcc", "-O2", "-fPIC", "-shared", "-DMI_MALLOC_OVERRIDE=1",
                              "-DMI_SHARED_LIB", "-DMI_SHARED_LIB_EXPORT", "-ftls-model=initial-exec", "-o", "OUT",
                              *self.mimalloc())
        if name == "homemade":
            return self.built("homemade.so", "gcc", "-O1", "-fPIC", "-shared", "-o", "OUT", "homemade.c")
        found = glob.glob(LIBRARIES[name])
        if not found:
            raise Skip(f"no {LIBRARIES[name]}")
        return found[0]

    def extension(self, name):
        start = ["gcc", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-o", "OUT"]
        if "mimalloc3" in name:
            return self.built(name, *start, "-DMIMALLOC", "extension.c", *self.mimalloc())
        return self.built(name, *start, "extension.c", "-l:libjemalloc_pic.a", "-Wl,--exclude-libs,ALL",
                          "-Wl,-Bsymbolic", "-lm", "-lstdc++", "-lpthread")

    def command(self, words, data):
        program, rest = words[0], words[1:]
        flags = ["-O1", "-w", "-pthread", "-o", "OUT", "held.c"]
        if program == "held":
            return [self.built(program, "gcc", *flags), *rest]
        if program == "held-musl":
            return [self.built(program, "musl-gcc", *flags), *rest]
        if program == "held-static":
            return [self.built(program, "gcc", *flags, "-static"), *rest]
        if program == "held-jemalloc":
            return [self.built(program, "gcc", *flags, "-l:libjemalloc.a", "-lm", "-lstdc++"), *rest]
        if program == "go":
            return [self.built("other-go", "go", "build", "-o", "OUT", "other.go"), *rest]
        if program == "rust":
            return [self.built("other-rs", "rustc", "--edition", "2021", "-O", "-o", "OUT", "other.rs"), *rest]
        if program == "python-data":
            python = data or sys.executable
            imports = [name for name in ("numpy", "pandas", "pyarrow", "polars")
                       if name[:5] in " ".join(rest).replace("ndarray", "numpy").replace("frame", "pandas")
                       .replace("arrow", "pyarrow").replace("pandas_polars", "polars")]
            return [python, str(HERE / "held.py"), *rest], imports
        if program.startswith("python"):
            return [python_of(program[6:]), str(HERE / "held.py"), *rest]
        scripts = {"node": ["node", "--expose-gc", "other.js"], "ruby": ["ruby", "other.rb"],
                   "java": ["java", "Other.java"]}
        if program in scripts:
            start = scripts[program]
            if not shutil.which(start[0]):
                raise Skip(f"no {start[0]}")
            return [*start[:-1], str(HERE / start[-1]), *rest]
        return [sys.executable, str(HERE / "servers.py"), program, *rest]


def python_of(version):
    found = sorted(glob.glob(os.path.expanduser(f"~/.pyenv/versions/{version}.*/bin/python"))) or [
        path for path in [shutil.which(f"python{version}")] if path]
    if not found:
        raise Skip(f"no python{version}")
    return found[-1]


class Cgroup:
    """A memory cgroup of a case's own."""

    def __init__(self, limit_mb):
        for mount, file in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
            self.folder = Path(mount) / f"ebb-looks-{os.getpid()}"
            try:
                self.folder.mkdir()
                (self.folder / file).write_text(str(limit_mb * 1_000_000))
                return
            except OSError:
                if self.folder.is_dir():
                    self.folder.rmdir()
        raise Skip("no right to make a cgroup")

    def enter(self):
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self):
        for _ in range(100):
            try:
                self.folder.rmdir()
                return
            except OSError:
                time.sleep(0.05)


def descendants(pid):
    found = [pid]
    for parent in found:
        for path in glob.glob(f"/proc/{parent}/task/*/children"):
            try:
                found += [int(word) for word in Path(path).read_text().split()]
            except OSError:
                pass
    return found


def proportional(pid, field="Pss:"):
    """PSS of a process and its descendants."""
    total = 0
    for each in descendants(pid):
        try:
            lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))
    return total


def line_of(process, seconds):
    """The next line that a process prints."""
    ready, _, _ = select.select([process.stdout], [], [], seconds)
    line = process.stdout.readline() if ready else b""
    if not line:
        raise Skip("the program ended or hung before it was ready")
    return json.loads(line)


def look(case, builder, ebb, data, folder):
    """Starts, looks, ends. Gives what is true, what was said, and what was measured around it."""
    command = builder.command(case.program, data)
    env = {name: value for name, value in os.environ.items()
           if name not in ("LD_PRELOAD", "PYTHONMALLOC", "MALLOC_CONF", "GLIBC_TUNABLES") and not name.startswith("MALLOC_")}
    if isinstance(command, tuple):
        command, imports = command
        if subprocess.run([command[0], "-c", "import " + ", ".join(imports or ["sys"])], capture_output=True).returncode:
            raise Skip(f"no {', '.join(imports)}: --data PYTHON names one that has them")
        env["HELD_IMPORT"] = " ".join(imports)
    env.update(case.env)
    if "HELD_EXTENSION" in env:
        env["HELD_EXTENSION"] = builder.extension(env["HELD_EXTENSION"])
    if case.program[0] in ("held-musl", "held-jemalloc"):
        env["HELD_HEADER"] = "8" if "musl" in case.program[0] else "0"
    if case.preload:
        library = builder.library(case.preload)
        env.setdefault("HELD_HEADER", "0")
        if case.file:
            copy = folder / Path(library).name
            shutil.copy(library, copy)
            library = str(copy)
        env["LD_PRELOAD"] = library
    if case.user and os.geteuid():
        raise Skip("only root starts another user's process")
    cgroup = Cgroup(case.limit_mb) if case.limit_mb else None
    process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                               user=case.user or None, preexec_fn=cgroup.enter if cgroup else None,
                               start_new_session=True, cwd="/")
    try:
        truth = line_of(process, 60)
        pid = truth.get("pid", process.pid)
        if case.file:
            os.unlink(library)
            if case.file == "replaced":
                shutil.copy(builder.library(case.preload), library)
                with open(library, "ab") as file:
                    file.write(b"another build")
        time.sleep(case.settle)
        if case.stopped:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(0.05)
        truth["total"], truth["before"] = proportional(pid), proportional(pid, "Pss_Anon:")
        began = time.monotonic()
        done = subprocess.run([ebb, "why", "--json", str(pid)], capture_output=True, text=True, timeout=150)
        truth["seconds"] = round(time.monotonic() - began, 2)
        truth["after"] = proportional(pid, "Pss_Anon:")
        said = json.loads(done.stdout) if done.stdout.strip() else []
        said = said[0] if isinstance(said, list) and said else None
        if case.program[0] == "held" and not (case.preload or case.stopped or case.user or "dies" in str(case.program)
                                              or case.limit_mb or "fork" in str(case.program)):
            process.stdin.write(b"t")
            process.stdin.flush()
            trim = line_of(process, 60)
            truth["returned"] = trim["before"] - trim["after"]
        return truth, said, done
    finally:
        for each in reversed(descendants(process.pid)):
            try:
                os.kill(each, signal.SIGKILL)
            except OSError:
                pass
        process.wait()
        process.stdin.close()
        process.stdout.close()
        if cgroup:
            cgroup.remove()


def deserved(truth, label):
    """The verdicts that a process's own figures allow, by the documentation's floors."""
    live, held, total = truth.get("live"), truth.get("held"), max(truth["total"], 1)
    if live is None or held is None or label == UNKNOWN:
        return None
    rest = total - live - held
    is_held = held >= LEAST and held >= REASON * total
    if is_held and rest >= LEAST and rest >= REASON * total:
        return BOTH
    if is_held:
        return HELD
    return OTHER if rest >= LEAST and rest >= MOST * total else USE


def off(said, true):
    return abs(said - true) > max(NEAR, PART * true)


def score(case, truth, said, done):
    """`right`, `undecided`, `wrong` or `mislabelled`, and why."""
    verdict = said["verdict"] if said else {"kind": "not-enough-evidence", "sentence": done.stderr.strip()}
    kind, sentence = verdict["kind"], verdict["sentence"]
    if case.program[0].startswith("held") and case.figures and deserved(truth, case.label) not in (None, case.label):
        return "mislabelled", f"its figures say {deserved(truth, case.label)}", kind
    if case.unsaid and case.unsaid in sentence:
        return "wrong", sentence, kind
    if case.label == UNKNOWN or (UNKNOWN in case.also and kind == "not-enough-evidence"):
        right = kind == "not-enough-evidence" or kind in case.also
        return ("right" if right else "wrong"), sentence, kind
    if kind == "not-enough-evidence":
        return "undecided", sentence, kind
    if kind != case.label and kind not in case.also:
        return "wrong", f"{case.label} is true: {sentence}", kind
    lines = Counter()
    for line in said["ledger"]["lines"]:
        lines[line["cause"]] += line["bytes"]
    live = lines["live"] + lines["objects"]
    held = sum(lines[cause] for cause in ("trimmable", "tops", "pinned", "cached", "kept", "lazy", "locked",
                                             "free-objects"))
    wrong = []
    if case.figures and truth.get("live") is not None and off(live, truth["live"]):
        wrong.append(f"live {live / 1e6:.1f} MB, true {truth['live'] / 1e6:.1f}")
    # What is measured from inside has the allocator's bookkeeping in it.
    nearest = min(max(truth.get("held") or 0, held), held + lines["metadata"])
    if case.figures and truth.get("held") is not None and off(nearest, truth["held"]):
        wrong.append(f"held {held / 1e6:.1f} MB, true {truth['held'] / 1e6:.1f}")
    if "returned" in truth and off(lines["trimmable"], truth["returned"]) and "churn" not in str(case.program):
        wrong.append(f"malloc_trim: {lines['trimmable'] / 1e6:.1f} MB foreseen, {truth['returned'] / 1e6:.1f} returned")
    # A collector may free meanwhile; a process that was killed has nothing left.
    grown = truth["after"] > truth["before"] and off(truth["after"], truth["before"])
    if (grown or not truth["after"]) and not any(word in str(case.program) for word in ("tick", "churn")):
        wrong.append(f"anonymous PSS {truth['before'] / 1e6:.0f} MB before the look, {truth['after'] / 1e6:.0f} after it")
    # What it says that it could not tell apart is no wrong figure.
    untold = lines["unread-heap"] >= LEAST and not off(
        live + held + lines["unread-heap"], (truth.get("live") or 0) + (truth.get("held") or 0))
    verdict = "undecided" if untold else "wrong"
    return (verdict if wrong else "right"), "; ".join(wrong), kind


def table(results):
    """Markdown: what was true against what was said, and each look that was not right."""
    kinds = [kind for kind in (USE, HELD, OTHER, BOTH, UNKNOWN) if any(one["label"] == kind for one in results)]
    counted = [one for one in results if one["score"] in ("right", "undecided", "wrong")]
    lines = ["| label | looks | right | undecided | wrong |", "|---|---:|---:|---:|---:|"]
    for kind in [*kinds, None]:
        group = [one for one in counted if kind in (None, one["label"])]
        sums = Counter(one["score"] for one in group)
        lines.append(f"| {kind or 'all'} | {len(group)} | {sums['right']} | {sums['undecided']} | {sums['wrong']} |")
    lines.append("")
    for one in results:
        if one["score"] != "right":
            lines.append(f"- {one['score']}: {one['name']} ({one['label']}): {one['said']}. {one['why']}")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ebb", default=str(ROOT / "target/release/ebb"), help="the tool that is tried")
    parser.add_argument("--only", default="", help="only cases whose name has these words")
    parser.add_argument("--data", default="", help="a Python that has numpy, pandas, pyarrow and polars")
    parser.add_argument("--out", type=Path, help="where looks.md, looks-machine.json and looks.jsonl go; else the table is printed only")
    arguments = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory(prefix="ebb-looks-") as folder:
        os.chmod(folder, 0o755)
        builder = Builder(Path(folder))
        for case in [case for case in CASES if arguments.only in case.name]:
            scratch = Path(tempfile.mkdtemp(dir=folder))
            scratch.chmod(0o755)
            one = {"name": case.name, "label": case.label, "said": "", "why": ""}
            try:
                truth, said, done = look(case, builder, arguments.ebb, arguments.data, scratch)
                one["score"], one["why"], one["said"] = score(case, truth, said, done)
                one["truth"] = truth
                if said:
                    one["lines"] = {line["cause"]: line["bytes"] for line in said["ledger"]["lines"]}
                    one["total"] = said["ledger"]["total"]
                    one["sentence"], one["next"] = said["verdict"]["sentence"], said["verdict"]["next"]
                one["exit"] = done.returncode
            except (Skip, subprocess.TimeoutExpired) as reason:
                one["score"] = "wrong" if isinstance(reason, subprocess.TimeoutExpired) else "skipped"
                one["why"] = str(reason)
            print(f"{one['score']:<11} {case.name}: {one['said']} {one['why'][:150]}", file=sys.stderr, flush=True)
            results.append(one)
    text = table(results)
    print(text)
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "looks.md").write_text(text)
        record = {"machine": machine.describe(), "command": shlex.join(["benches/looks/run.py", *sys.argv[1:]])}
        (arguments.out / "looks-machine.json").write_text(json.dumps(record) + "\n")
        with (arguments.out / "looks.jsonl").open("w") as file:
            file.writelines(json.dumps(one) + "\n" for one in results)


if __name__ == "__main__":
    main()
