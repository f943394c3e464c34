"""What is run: each job is one command line, the same under every allocator."""

from dataclasses import dataclass

RETURN_PATTERNS = ["survivors", "tiny", "mid", "idle", "handoff", "phases", "subscribers", "buffers"]
SPEED_SINGLE = ["pair", "batch", "mixed", "buffers", "realloc", "calloc", "churn", "larson"]


@dataclass(frozen=True)
class Job:
    """`kind` is the table it belongs to; `label` its row there."""

    kind: str
    label: str
    command: tuple[str, ...]
    timeout_s: int = 180


def _return(pattern: str, *options: str, label: str = "", rest_s: float) -> Job:
    return Job("return", label or pattern, ("return", pattern, "--rest", str(rest_s), *options))


def return_jobs(quick: bool) -> list[Job]:
    """The patterns with threads asleep, then what the first row depends on."""
    rest_s = 3.25 if quick else 6.0
    refused = [
        _return(p, "--refuse", "process_madvise", label=f"{p}, process_madvise refused", rest_s=rest_s)
        for p in ("survivors", "idle")
    ]
    if quick:
        return [_return("survivors", rest_s=rest_s), _return("idle", rest_s=rest_s), refused[0]]
    rows = [_return(p, rest_s=rest_s) for p in RETURN_PATTERNS]
    for pattern in ("survivors", "idle"):
        for after in ("gone", "busy"):
            rows.append(_return(pattern, "--after", after, label=f"{pattern}, threads {after}", rest_s=rest_s))
    rows += refused
    both = "process_madvise:ENOSYS,membarrier"
    rows.append(_return("survivors", "--refuse", both, label="survivors, membarrier refused too", rest_s=rest_s))
    return rows


def speed_jobs(quick: bool, cpus: int) -> list[Job]:
    percent = "100" if quick else "200"
    cases = ["pair", "batch", "mixed", "larson"] if quick else SPEED_SINGLE
    jobs = [Job("speed", case, ("speed", case, "--rounds-percent", percent)) for case in cases]
    jobs.append(Job("speed", "cross, 2 threads", ("speed", "cross", "--threads", "2", "--rounds-percent", percent)))
    if not quick and cpus > 1:
        for case in ("batch", "mixed", "larson"):
            for threads in sorted({cpus, 4 * cpus}):
                command = ("speed", case, "--threads", str(threads), "--rounds-percent", "50")
                jobs.append(Job("speed", f"{case}, {threads} threads", command))
    jobs.append(Job("speed", "containers", ("containers", "10" if quick else "30")))
    return jobs
