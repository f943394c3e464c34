"""From runs to the tables of the kinds return, generator and instructions; pure functions."""

from . import markdown
from .allocators import OURS
from .tables import Figure, losing_first, medians, present, titled

MIB = 2**20
# A generated workload's memory must lie within this of its own bound.
WITHIN, WITHIN_MIB = 1.2, 2.0


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


def allocator_cpu_ms(run: dict) -> float:
    return 1000 * (run["allocator_burst_cpu_s"] + run["allocator_rest_cpu_s"])


def above_at(at_s: float) -> Figure:
    return Figure(f"MiB above the live heap, {at_s:g} s after the burst", lambda run: above_live_mib(run, at_s))


BOUND = Figure("The bound: MiB above the live heap if every page without a survivor were gone", bound_mib)


def watched_s(trial) -> float:
    """How long the shortest of the runs was watched."""
    return min((r["samples"][-1]["at_s"] for runs in trial.runs.values() for r in runs if "samples" in r), default=0)


def return_section(jobs: list, allocators: list, trial) -> str:
    jobs = [job for job in jobs if any(trial.of(job, a) for a in allocators)]
    last = 5 if watched_s(trial) >= 5 - 1e-3 else 3
    jobs = losing_first(jobs, trial, allocators, above_at(last))
    figures = [above_at(at_s) for at_s in (last, 2, 1)] + [
        BOUND,
        Figure("CPU seconds of the process, burst and rest together, the observer's left out", cpu_s, 2),
        Figure("CPU milliseconds of the allocator's own threads", allocator_cpu_ms),
        Figure("Page faults in the burst, thousands", lambda run: run["burst_faults"] / 1000),
        Figure("Page faults while the threads rest or serve on", lambda run: run["rest_faults"], 0),
    ]
    return "\n".join([lost_return(jobs, allocators, trial, last), *(titled(jobs, allocators, trial, f) for f in figures)])


def lost_return(jobs: list, allocators: list, trial, last: float) -> str:
    """The rows in which a peer is lower, with the bound beside them."""
    rows = []
    for job in jobs:
        found = medians(trial, job, allocators, above_at(last))
        better = sorted((v, n) for n, v in found.items() if OURS in found and not n.startswith(OURS) and v < found[OURS])
        if better:
            bound = medians(trial, job, allocators, BOUND)[OURS]
            rows.append([job.label, f"{found[OURS]:.1f}", f"{bound:.1f}", f"{better[0][0]:.1f} ({better[0][1]})"])
    head = [f"row, MiB above live after {last:g} s", OURS, "its bound", "best peer"]
    return "### Rows lost\n\n" + (markdown(head, rows) if rows else "None.") + "\n"


def kept_promise(run: dict, last: float) -> bool:
    return above_live_mib(run, last) <= WITHIN * bound_mib(run) + WITHIN_MIB


def returned_early(run: dict, last: float) -> bool:
    """Whether 95 % of what went by the end had gone two seconds after the burst."""
    first, early, end = (above_live_mib(run, at_s) for at_s in (0, 2, last))
    return first - end < 1 or first - early >= 0.95 * (first - end)


def generator_section(jobs: list, allocators: list, trial) -> str:
    allocators = [a for a in allocators if any(trial.of(job, a) for job in jobs)]
    last = 5 if watched_s(trial) >= 5 - 1e-3 else 3
    counts = []
    for allocator in allocators:
        runs = [run for job in jobs for run in trial.of(job, allocator)]
        over = sorted(above_live_mib(r, last) - bound_mib(r) for r in runs)
        cells = [f"{sum(test(r, last) for r in runs)} of {len(runs)}" for test in (kept_promise, returned_early)]
        counts.append(
            [allocator.name, *cells, f"{over[len(over) // 2]:.1f}", f"{over[-1]:.1f}", f"{max(r['wrong_bytes'] for r in runs)}"]
        )
    head = ["", f"within {WITHIN - 1:.0%} of the bound plus {WITHIN_MIB:g} MiB", "95 % returned after 2 s"]
    head += ["MiB above the bound, median", "most", "wrong bytes"]
    parts = [f"### Seeds that kept to the bound, {last:g} s after the end\n", markdown(head, counts) + "\n"]

    ours = next((a for a in allocators if a.name == OURS), allocators[0] if allocators else None)
    over_bound = Figure("", lambda run: above_live_mib(run, last) - bound_mib(run))
    jobs = [job for job in jobs if ours and trial.of(job, ours)]
    jobs.sort(key=lambda job: -present(trial, job, ours, over_bound)[0])
    rows = []
    for job in jobs:
        run = trial.of(job, ours)[0]
        drawn = (
            f"{run['threads']} threads, {run['after']}; {len(run['drawn'])} phases, {run['peak_requested_bytes'] / MIB:.0f} MiB"
        )
        cells = [job.label, drawn, f"{bound_mib(run):.1f}"]
        for allocator in allocators:
            cells.append(next((f"{above_live_mib(r, last):.1f}" for r in trial.of(job, allocator)), "failed"))
        rows.append(cells)
    parts.append(f"### MiB above the live heap by seed, the farthest above {ours.name if ours else OURS}'s bound first\n")
    parts.append(markdown(["", "drawn", f"bound of {ours.name if ours else OURS}", *(a.name for a in allocators)], rows) + "\n")
    return "\n".join(parts)


def instructions_section(rows: list[dict]) -> str:
    lines = []
    for row in rows:
        if "trouble" in row:
            lines.append([row["allocator"], row["trouble"], "", "", "", ""])
            continue
        one, many = row["batch_1"], row["batch_1000"]
        figures = (one["malloc"], one["free"], one["malloc"] + one["free"], many["malloc"], many["free"])
        lines.append([row["allocator"], *(f"{v:.1f}" for v in figures)])
    return markdown(["", "malloc", "free", "pair", "malloc, batch", "free, batch"], lines) + "\n"
