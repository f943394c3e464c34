"""From runs to the tables of the kinds speed and scale; pure functions."""

from . import intervals, markdown
from .allocators import OURS
from .tables import Figure, best_peer, losing_first, medians, present, titled

MIB = 2**20
# With fewer, an interval says nothing: the bootstrap sees no more than least and most.
REPETITIONS_LEAST = 4


def time_of(run: dict) -> float:
    """What two runs of a row are compared by: nanoseconds an operation, or the whole wall time."""
    return run.get("ns_per_operation", run["wall_s"])


def cpu_of(run: dict) -> float:
    return run["cpu_s"] * 1e9 / run["operations"] if "operations" in run else run["cpu_s"]


TIME = Figure("time", time_of, 3)
CPU = Figure("CPU time", cpu_of, 3)
PEAK = Figure("Peak of resident memory, MiB (of the largest process)", lambda run: run["peak_rss_bytes"] / MIB)


def speed_section(jobs: list, allocators: list, trial) -> str:
    jobs = losing_first(jobs, trial, allocators, TIME, relative=True)
    ours, others = [j for j in jobs if not j.program], [j for j in jobs if j.program]
    parts = [against_best(jobs, allocators, trial), means(jobs, allocators, trial)]
    own_time = Figure("Nanoseconds an operation (wall time over the operations of all threads)", time_of)
    parts.append(titled(ours, allocators, trial, own_time))
    if others:
        parts.append(titled(others, allocators, trial, Figure("Programs of others: wall seconds", time_of, 3)))
    parts.append(titled(ours, allocators, trial, Figure("CPU nanoseconds an operation, all threads together", cpu_of)))
    if others:
        title = "Programs of others: CPU seconds (of redis: the server's)"
        parts.append(titled(others, allocators, trial, Figure(title, cpu_of, 3)))
    parts.append(titled(jobs, allocators, trial, PEAK))
    return "\n".join(parts)


def against_best(jobs: list, allocators: list, trial) -> str:
    """Ours over each row's best peer, with the interval; the losing rows on top."""
    rows = []
    by_name = {a.name: a for a in allocators}
    for job in jobs:
        found = medians(trial, job, allocators, TIME)
        best = best_peer(found)
        if OURS not in found or not best:
            continue
        cells = []
        for figure in (TIME, CPU):
            values = [present(trial, job, by_name[name], figure) for name in (OURS, best)]
            low, middle, high = intervals.ratio(*values)
            enough = min(map(len, values)) >= REPETITIONS_LEAST
            verdict = " lost" if enough and low > 1 else " won" if enough and high < 1 else ""
            cells.append(f"{middle:.2f} ({low:.2f}-{high:.2f}){verdict}")
        rows.append([job.label, best, *cells])
    title = f"### {OURS} over each row's best peer: time, and CPU time against the same peer\n"
    note = "Below 1 is faster. *Lost* and *won*: the whole 95 % interval lies above or below 1"
    note += f" (said from {REPETITIONS_LEAST} repetitions on).\n"
    return "\n".join([title, note, markdown(["", "best peer", "time", "CPU time"], rows), ""])


def means(jobs: list, allocators: list, trial) -> str:
    """Geometric means over the rows that every allocator has, relative to the best single peer."""
    names = [a.name for a in allocators if a.available() and not a.special]
    columns = {}
    for figure in (TIME, CPU):
        rows = [found for job in jobs if set(names) <= set(found := medians(trial, job, allocators, figure))]
        columns[figure.title] = (
            {n: intervals.geometric_mean([r[n] / min(r.values()) for r in rows]) for n in names} if rows else {}
        )
    if not columns[TIME.title]:
        return "No row has a figure of every allocator, so there are no means.\n"
    left_out = [job.label for job in jobs if not set(names) <= set(medians(trial, job, allocators, TIME))]
    peers = [n for n in names if not n.startswith(OURS)]
    lines = []
    for name in sorted(names, key=columns[TIME.title].get):
        cells = [name]
        for mean in columns.values():
            best = min((mean[p] for p in peers), default=mean[name])
            cells += [f"{mean[name]:.3f}", f"{mean[name] / best:.3f}"]
        cells.append(_peak_against_glibc(name, jobs, allocators, trial))
        lines.append(cells)
    head = [
        "",
        "time over the row's best",
        "over the best single peer",
        "CPU time over the row's best",
        "over the best single peer",
    ]
    head.append("peak over glibc's, rows above 20 MiB")
    text = f"### Geometric means over {len(jobs) - len(left_out)} rows\n\n{markdown(head, lines)}\n"
    return text + (f"\nLeft out, because an allocator has no figure: {', '.join(left_out)}.\n" if left_out else "")


def _peak_against_glibc(name: str, jobs: list, allocators: list, trial) -> str:
    ratios = []
    for job in jobs:
        peaks = medians(trial, job, allocators, PEAK)
        if name in peaks and peaks.get("glibc", 0) > 20:
            ratios.append(peaks[name] / peaks["glibc"])
    return f"{intervals.geometric_mean(ratios):.3f}" if ratios else ""


SCALE = {
    "threads": [
        Figure(
            "Threads: nanoseconds an operation (wall time over the operations of all threads)", lambda r: r["ns_per_operation"]
        )
    ],
    "huge pages": [
        Figure("Huge pages always: nanoseconds an operation, or wall seconds of a program of others", time_of, 3),
        Figure("Huge pages always: peak of resident memory, MiB", lambda r: r["peak_rss_bytes"] / MIB),
    ],
    "tick": [
        Figure(
            "Heap: CPU milliseconds a second of the allocator's own threads, 50 MiB a second replaced",
            lambda r: 1000 * r["allocator_cpu_s"] / r["wall_s"],
            3,
        ),
        Figure("Heap: page faults a second meanwhile", lambda r: r["faults"] / r["wall_s"], 0),
        Figure(
            "Heap: CPU milliseconds of the allocator's own threads in 2 s without a request",
            lambda r: 1000 * r["idle_allocator_cpu_s"],
            3,
        ),
        Figure("Heap: wake-ups of any thread in these 2 s", lambda r: r["idle_wakeups"], 0),
    ],
    "latency": [
        *(
            Figure(f"Latency of a call while memory is returned: {name}, ns", lambda r, key=key: r[key], 0)
            for name, key in (("median", "p50_ns"), ("p99", "p99_ns"), ("p99.9", "p999_ns"), ("p99.99", "p9999_ns"))
        ),
        Figure(
            "The longest call, µs (on the CPU clock an upper bound of the longest critical section)",
            lambda r: r["longest_ns"] / 1000,
        ),
    ],
    "prefork": [
        Figure("Forked workers: MiB of PSS, all processes, while each holds 20 MiB", lambda r: r["pss_held_bytes"] / MIB),
        Figure("Forked workers: MiB of PSS after they freed it", lambda r: r["pss_rested_bytes"] / MIB),
        Figure("Forked workers: MiB that the objects alone need then", lambda r: r["needed_rested_bytes"] / MIB),
    ],
    "steady": [
        Figure(
            "Steady load: the allocator's own threads, per cent of the CPU time",
            lambda r: 100 * r["allocator_cpu_s"] / r["process_cpu_s"],
            2,
        ),
        Figure("Steady load: page faults a request", lambda r: r["faults"] / max(r["requests"], 1), 2),
        Figure("Steady load: CPU microseconds a request", lambda r: 1e6 * r["cpu_s_a_request"]),
        Figure("Steady load: microseconds from due to done", lambda r: 1e6 * r["latency_s_a_request"]),
    ],
}


def scale_section(jobs: list, allocators: list, trial) -> str:
    parts = []
    for group, figures in SCALE.items():
        rows = [job for job in jobs if job.group == group]
        for figure in figures if rows else []:
            timed = group in ("threads", "huge pages")
            ordered = losing_first(rows, trial, allocators, figures[0], relative=True) if timed else rows
            parts.append(titled(ordered, allocators, trial, figure))
    return "\n".join(parts)
