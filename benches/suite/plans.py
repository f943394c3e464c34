"""What is run: each job is one command line, the same under every allocator.

A kind is a list of jobs and the tables that summary.py makes of them. Every list is
fixed here (the programs of others in programs.toml) before anything is measured.
"""

from dataclasses import dataclass, replace

from . import programs
from .programs import Program

RETURN_PATTERNS = ["survivors", "tiny", "mid", "idle", "handoff", "phases", "subscribers", "buffers"]
SPEED_SINGLE = ["pair", "batch", "mixed", "buffers", "realloc", "calloc", "churn", "larson"]
# Long rows in addition to the main ones: libc, the newest peers by default, the best-tuned peer, and ours.
SHORT_LIST = ("glibc", "jemalloc-new", "jemalloc-new-1s", "mimalloc-3", "ebbmalloc")


@dataclass(frozen=True)
class Job:
    """`kind` is the table it belongs to; `label` its row there; `seconds` what one run takes, about."""

    kind: str
    label: str
    command: tuple[str, ...] = ()
    timeout_s: int = 180
    seconds: float = 1.0
    only: tuple[str, ...] | None = None  # allocators of this row; None: all that are no special variant
    huge_pages: str = ""  # "always": the machine set to it; "eager": and khugepaged hurried
    program: Program | None = None  # of others; else `command` is one of ours
    repetitions_most: int = 99
    group: str = ""  # the table within its kind

    def takes(self, allocator) -> bool:
        return allocator.name in self.only if self.only else not allocator.special


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def _return(pattern: str, *options: str, label: str = "", rest_s: float, **more) -> Job:
    command = ("return", pattern, "--rest", str(rest_s), *options)
    return Job("return", label or pattern, command, seconds=rest_s + 1.0, **more)


def return_jobs(quick: bool) -> list[Job]:
    """The patterns with four threads asleep afterwards, under all; then what a row depends on."""
    rest_s = 3.25 if quick else 5.25
    if quick:
        rows = [_return(p, rest_s=rest_s, only=SHORT_LIST) for p in ("survivors", "idle")]
        refused = ("survivors", "--refuse", "process_madvise")
        label = "survivors, process_madvise refused"
        return [*rows, _return(*refused, label=label, rest_s=rest_s, only=("jemalloc-new-1s", "ebbmalloc"))]
    rows = [_return(p, rest_s=rest_s) for p in RETURN_PATTERNS]

    def variant(pattern: str, label: str, *options: str, rest_s: float = rest_s, huge_pages: str = "") -> None:
        row = _return(pattern, *options, label=f"{pattern}, {label}", rest_s=rest_s, only=SHORT_LIST, huge_pages=huge_pages)
        rows.append(row)

    for threads in (1, 64):
        for pattern in ("survivors", "idle"):
            variant(pattern, _threads(threads), "--threads", str(threads))
    variant("survivors", "1000 threads", "--threads", "1000")
    variant("idle", "1000 threads of 1 MiB, stacks counted", "--threads", "1000", "--mib", "1000", "--stacks")
    for after in ("gone", "busy", "computing"):
        variant("survivors", f"threads {after}", "--after", after)
        variant("idle", f"threads {after}", "--after", after)
    variant("idle", "64 threads gone", "--threads", "64", "--after", "gone")
    for pattern in ("survivors", "idle"):
        variant(pattern, "process_madvise refused", "--refuse", "process_madvise")
    late = ("--refuse", "process_madvise", "--late")
    variant("survivors", "process_madvise refused by the program itself", *late)
    variant("survivors", "membarrier refused", "--refuse", "membarrier")
    variant("survivors", "membarrier refused too", "--refuse", "process_madvise:ENOSYS,membarrier")
    for pattern in ("survivors", "tiny", "idle"):
        variant(pattern, "huge pages always, eager khugepaged", rest_s=12.25, huge_pages="eager")
    return rows


def generator_jobs(quick: bool, first_seed: int, seeds: int) -> list[Job]:
    """Seeds that follow one that nobody chose."""
    rest_s = 3.25 if quick else 5.25
    only = ("jemalloc-new-1s", "mimalloc-3", "ebbmalloc") if not quick else ("jemalloc-new-1s", "ebbmalloc")
    return [
        Job(
            "generator",
            f"seed {seed}",
            ("return", "generated", "--seed", str(seed), "--rest", str(rest_s)),
            seconds=rest_s + 1.5,
            only=only,
            repetitions_most=1,
        )
        for seed in range(first_seed, first_seed + seeds)
    ]


def speed_jobs(quick: bool, cpus: int) -> list[Job]:
    """Our own cases, then the programs of others."""

    def case(name: str, threads: int = 1, percent: int = 100) -> Job:
        command = ("speed", name, "--threads", str(threads), "--rounds-percent", str(percent / threads))
        label = name if threads == 1 else f"{name}, {_threads(threads)}"
        return Job("speed", label, command, seconds=0.5)

    if quick:
        jobs = [case(c, percent=50) for c in ("pair", "batch", "mixed", "larson")] + [case("cross", 2, 50)]
        jobs.append(Job("speed", "containers", ("containers", "10"), seconds=0.5))
    else:
        jobs = [case(c) for c in SPEED_SINGLE]
        jobs += [case("cross", threads, 200) for threads in sorted({2, cpus, 2 * cpus}) if threads > 1]
        jobs += [case(c, 2 * cpus, 200) for c in ("batch", "mixed", "larson")]
        jobs.append(Job("speed", "containers", ("containers", "20"), seconds=0.9))
    few = ("gcc compile", "sqlite3", "ripgrep", "python deepcopy", "python deepcopy, PYTHONMALLOC=malloc")
    for program in programs.listed():
        if not quick or program.name in few:
            only = SHORT_LIST if quick else None
            jobs.append(Job("speed", program.name, program=program, seconds=2.2 if program.load else 0.9, only=only))
    return jobs


def scale_jobs(quick: bool) -> list[Job]:
    """Threads, heap sizes, latency, forked workers, steady load."""
    jobs = []
    peers = (*SHORT_LIST, "mimalloc-2", "tcmalloc", "snmalloc")
    for case in ("mixed", "larson", "cross"):
        for threads in (1, 2, 4, 8, 16, 32, 64) if not quick else (4, 32):
            if case == "cross" and threads == 1:
                continue
            command = ("speed", case, "--threads", str(threads), "--rounds-percent", f"{150 / max(threads, 2):.4g}")
            jobs.append(Job("scale", f"{case}, {_threads(threads)}", command, seconds=0.5, only=peers, group="threads"))
    tuned = ("glibc", "jemalloc-new-1s", "ebbmalloc")
    with_off = (*tuned, "ebbmalloc-off")
    for heap_mib in (10, 100, 1024, 8192) if not quick else (100,):
        command = ("tick", str(heap_mib), "50", "2" if quick else "4")
        label, seconds = f"heap of {heap_mib} MiB", 9.3 + heap_mib / 1500
        jobs.append(Job("scale", label, command, seconds=seconds, only=tuned, group="tick", repetitions_most=3))
    for clock, calls in (("wall", 20_000_000), ("cpu", 4_000_000)):
        command = ("latency", clock, str(calls // 5 if quick else calls))
        only = (*SHORT_LIST, "ebbmalloc-off")
        jobs.append(Job("scale", f"latency, {clock} clock", command, seconds=2 if quick else 3, only=only, group="latency"))
    prefork = ("prefork", "100", "4", "20")
    only = tuned if quick else SHORT_LIST
    jobs.append(Job("scale", "4 forked workers", prefork, seconds=6.8, only=only, group="prefork"))
    for rate in (10, 100, 1000, 0) if not quick else (100,):
        # At 10 a second, what is touched for the first time would be most of what is seen in a few seconds.
        lasts = 3 if quick else 60 if rate == 10 else 8
        command = ("steady", str(rate), str(lasts))
        label = f"{rate} requests a second" if rate else "as many requests as it can"
        jobs.append(Job("scale", label, command, seconds=lasts + 2.3, only=with_off, group="steady", repetitions_most=3))
    jobs += [] if quick else _under_huge_pages()
    return [replace(job, repetitions_most=1) for job in jobs] if quick else jobs


def _under_huge_pages() -> list[Job]:
    """Whether time is lost for want of huge pages: the machine set to always."""
    row = Job("scale", "", only=SHORT_LIST, huge_pages="always", group="huge pages", seconds=0.9)
    cases = [("speed", "mixed"), ("speed", "buffers"), ("containers", "20")]
    jobs = [replace(row, label=f"{c[-1] if c[0] == 'speed' else c[0]}, huge pages always", command=c) for c in cases]
    named = ("g++ compile", "jq", "python async_tree, PYTHONMALLOC=malloc", "redis")
    found = [p for p in programs.listed() if p.name in named]
    return jobs + [replace(row, label=f"{p.name}, huge pages always", program=p) for p in found]
