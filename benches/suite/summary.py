"""From runs to tables: pure functions, medians with their range, Markdown out."""

import statistics
from typing import Callable

MIB = 2**20


def above_live_mib(run: dict, at_s: float) -> float | None:
    """The first reading at or after `at_s`; None when the run was not watched so long."""
    for sample in run["samples"]:
        if sample["at_s"] >= at_s - 1e-3:
            return sample["above_live_bytes"] / MIB
    return None


def bound_mib(run: dict) -> float:
    return run["bound_above_live_bytes"] / MIB


def cpu_s(run: dict) -> float:
    return run["burst_cpu_s"] + run["rest_cpu_s"]


def cell(values: list[float | None], digits: int) -> str:
    """Median and range; the range is left out where it rounds to the median."""
    present = [v for v in values if v is not None]
    if not present:
        return "failed"
    low, middle, high = (f"{v:.{digits}f}" for v in (min(present), statistics.median(present), max(present)))
    return middle if low == high else f"{middle} ({low}-{high})"


def table(jobs: list, allocators: list, trial, figure: Callable[[dict], float | None], digits: int) -> str:
    """One row a job, one column an allocator."""
    head = ["", *(a.name for a in allocators)]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for job in jobs:
        cells = []
        for allocator in allocators:
            if not allocator.available():
                cells.append("not installed")
            else:
                cells.append(cell([figure(run) for run in trial.of(job, allocator)], digits))
        lines.append("| " + " | ".join([job.label, *cells]) + " |")
    return "\n".join(lines)


def return_section(jobs: list, allocators: list, trial) -> str:
    parts = []
    watched = [job for job in jobs if any(trial.of(job, a) for a in allocators)]
    longest = max((r["samples"][-1]["at_s"] for runs in trial.runs.values() for r in runs if "samples" in r), default=0)
    for at_s in (1, 2, 3, 5):
        if at_s <= longest + 1e-3:
            parts.append(f"### MiB above the live heap, {at_s} s after the burst\n")
            parts.append(table(watched, allocators, trial, lambda run, t=at_s: above_live_mib(run, t), 1) + "\n")
    parts.append("### The bound: MiB above the live heap if every page without a survivor were gone\n")
    parts.append(table(watched, allocators, trial, bound_mib, 1) + "\n")
    parts.append("### CPU seconds, burst and rest together\n")
    parts.append(table(watched, allocators, trial, cpu_s, 2) + "\n")
    return "\n".join(parts)


def speed_section(jobs: list, allocators: list, trial) -> str:
    parts = ["### Nanoseconds an operation (wall time over the operations of all threads)\n"]
    parts.append(table(jobs, allocators, trial, lambda run: run["ns_per_operation"], 1) + "\n")
    parts.append("### CPU nanoseconds an operation, all threads together\n")
    parts.append(table(jobs, allocators, trial, lambda run: run["cpu_s"] * 1e9 / run["operations"], 1) + "\n")
    parts.append("### Peak of resident memory, MiB\n")
    parts.append(table(jobs, allocators, trial, lambda run: run["peak_rss_bytes"] / MIB, 1) + "\n")
    return "\n".join(parts)


def instructions_section(rows: list[dict]) -> str:
    lines = ["| | malloc | free | pair | malloc, batch | free, batch |", "|---|---|---|---|---|---|"]
    for row in rows:
        if "trouble" in row:
            lines.append(f"| {row['allocator']} | {row['trouble']} | | | | |")
            continue
        one, many = row["batch_1"], row["batch_1000"]
        figures = (one["malloc"], one["free"], one["malloc"] + one["free"], many["malloc"], many["free"])
        lines.append(f"| {row['allocator']} | " + " | ".join(f"{v:.1f}" for v in figures) + " |")
    return "\n".join(lines) + "\n"
