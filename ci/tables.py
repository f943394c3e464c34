#!/usr/bin/env python3
"""Writes the tables of figures in the pages, from the results that are kept in the tree.

    ci/tables.py            # write them
    ci/tables.py --check    # only name the pages whose tables are not those of the results; exit status 1 then

A page marks the place of a table with `<!-- table: NAME -->` and `<!-- end of table -->`; NAMES below has them.
Results are benches/results/KIND.json, which benches/publish.py writes, workloads/NAME/result.json, which
workloads/publish.py writes, and ci/hosts/result.json, which ci/hosts.sh writes.
"""

import json
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACE = re.compile(r"(<!-- table: ([^>]*?) -->\n).*?(<!-- end of table -->)", re.DOTALL)
WORKLOADS = ("sse", "lens", "device", "readahead", "warden", "leaky")
OURS = "ebbmalloc"
# A row is listed as lost where ebbmalloc takes so much more than the best peer.
LOST = 1.10

VARIANTS = {
    "jemalloc": "jemalloc, default",
    "jemalloc-0": "jemalloc, no decay",
    "jemalloc-1000": "jemalloc, decay 1000 ms",
    "jemalloc-tuned": "jemalloc, tuned",
    "floor": "glibc trimmed (floor)",
    "glibc-arena-2": "glibc, `MALLOC_ARENA_MAX=2`",
    "glibc-arena2": "glibc, `MALLOC_ARENA_MAX=2`",
    "rust-jemalloc-1000": "jemalloc inside, decay 1000 ms",
    "rust-ebbmalloc": "ebbmalloc inside",
}


# --- Markdown


def markdown(head: list[str], rows: Iterable[list[str]], left: int = 1) -> str:
    """A table whose first `left` columns are text and the others numbers."""
    rule = ["---"] * left + ["---:"] * (len(head) - left)
    lines = [" | ".join(line).strip() for line in [head, *rows]]
    return "\n".join([lines[0], "|".join(rule), *lines[1:]]) + "\n"


def number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}"


def fine(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 20 else f"{value:.2f}"


def spread(figure: list[float]) -> str:
    """Median, and lowest and highest run where they round differently."""
    median, low, high = (number(value) for value in figure)
    return median if low == high else f"{median} ({low}–{high})"


# --- Trials of workloads


def trials_of(workload: str) -> dict:
    return json.loads((ROOT / f"workloads/{workload}/result.json").read_text())


def name_of(variant: dict) -> str:
    """For readers: what the variant is today, else its name with its variables as code."""
    if "today" in variant:
        return variant["today"]
    base, *settings = variant["name"].split("+")
    return ", ".join([VARIANTS.get(base, base), *(f"`{setting}`" for setting in settings)])


def where(machine: str) -> str:
    """The machine in few words, without its memory and distribution."""
    processor, processors, *_, kernel = machine.split(", ")
    return f"{processors.split()[0]} cores of {processor_of(processor)}, {kernel}"


def processor_of(name: str) -> str:
    return re.sub(r"\(R\)| Processor", "", name)


def hides_times(trial: dict) -> bool:
    """Whether other programs disturbed so many runs that times say nothing."""
    found = re.match(r"in (\d+) of (\d+) runs", trial["disturbed"] or "")
    return bool(found) and int(found.group(1)) > int(found.group(2)) / 10


def source(trial: dict) -> str:
    """Where the figures come from, as a paragraph."""
    runs = max(variant["runs"] for variant in trial["variants"])
    told = [
        f"`{trial['command']}`, {trial['started'][:10]}",
        where(trial["machine"]),
        f"commit {trial['commit']}",
        f"{runs} run{'s' * (runs > 1)} of each variant",
    ]
    text = ", ".join(told) + ("; PSS" if trial["metric"] == "pss" else "") + "."
    if hides_times(trial):
        text += " Other programs disturbed it: no times."
    if trial.get("note"):
        text += f" {trial['note']}."
    return text


# Heading, key, how it is written, whether it is a time.
Column = tuple[str, str, Callable[[list[float]], str], bool]
COLUMNS: list[Column] = [
    ("baseline", "baseline_mb", lambda f: number(f[0]), False),
    ("peak", "peak_mb", lambda f: number(f[0]), False),
    ("after rest", "after_rest_mb", spread, False),
    ("live", "live_mb", lambda f: number(f[0]), False),
    ("CPU s", "cpu_s", lambda f: number(f[0]), True),
    ("requests/s", "requests_per_s", lambda f: fine(f[0]), True),
    ("p99 ms", "p99_ms", lambda f: number(f[0]), True),
]


def trial_table(workload: str, *names: str) -> str:
    """MB resident and costs of one trial, or of several below each other."""
    rows = []
    chosen = [trials_of(workload)[name] for name in names]
    for place, trial in enumerate(chosen):
        for variant in trial["variants"]:
            label = name_of(variant) + (f", {trial['started'][:10]}" if place else "")
            cells = []
            for _, key, write, is_time in COLUMNS:
                hidden = key not in variant or is_time and hides_times(trial)
                cells.append("" if hidden else write(variant[key]))
            rows.append([label, *cells])
    sources = "\n\n".join(source(trial) for trial in chosen)
    return markdown(["MB, medians", *(c[0] for c in COLUMNS)], rows) + f"\n{sources}\n"


def after_rest(trial: dict, wanted: Callable[[dict], bool]) -> dict | None:
    """The variant wanted that holds least after the rest."""
    return min(filter(wanted, trial["variants"]), key=lambda v: v["after_rest_mb"][0], default=None)


def is_ours(variant: dict, off: bool) -> bool:
    return OURS in variant["name"] and ("python:off" in name_of(variant)) == off


def workloads_table() -> str:
    """Every kept trial but those of leaky in one row: MB after the rest."""
    rows = []
    for workload in WORKLOADS[:-1]:
        for name, trial in trials_of(workload).items():
            found = [
                after_rest(trial, lambda v: v["name"] in ("glibc", "musl")),
                after_rest(trial, lambda v: "jemalloc" in v["name"]),
                after_rest(trial, lambda v: v["name"].startswith("floor")),
                after_rest(trial, lambda v: is_ours(v, off=True)),
                after_rest(trial, lambda v: is_ours(v, off=False)),
            ]
            cells = [number(v["after_rest_mb"][0]) if v else "" for v in found]
            runs = max(v["runs"] for v in trial["variants"])
            taken = f"{trial['started'][:10]}, {processor_of(trial['machine'].split(',')[0])}, n={runs}"
            rows.append([f"[{workload}]({workload}/) {name}", *cells, taken])
    head = ["MB after rest", "libc", "best jemalloc", "floor", "`python:off`", OURS, "trial"]
    return markdown(head, rows)


def leaky_table() -> str:
    """Baseline, MB after the rest and how much of it is live, for each mistake."""
    trials = trials_of("leaky")
    rows = []
    for variant in trials["demo"]["variants"]:
        cells = []
        for name in ("demo", "native", "repaired"):
            found = next((v for v in trials[name]["variants"] if v["name"] == variant["name"]), None)
            parts = [number(found[key][0]) for key in ("baseline_mb", "after_rest_mb", "live_mb")] if found else []
            cells.append(f"{parts[0]}, {parts[1]} ({parts[2]})" if found else "")
        rows.append([name_of(variant), *cells])
    said = source(trials["demo"])
    return markdown(["MB", "`demo` (Python)", "`native`", "`repaired`"], rows) + f"\n{said} The others with `--profile`.\n"


# --- Benchmarks


def result_of(kind: str) -> dict:
    return json.loads((ROOT / f"benches/results/{kind}.json").read_text())


def table_of(kind: str, title: str) -> dict[str, dict[str, str]]:
    """Rows by label, cells by column, of the table whose title begins so."""
    table = next(t for t in result_of(kind)["tables"] if t["title"].startswith(title))
    return {row[0]: _first_of_each(table["columns"][1:], row[1:]) for row in table["rows"]}


def _first_of_each(columns: list[str], cells: list[str]) -> dict[str, str]:
    row: dict[str, str] = {}
    for column, cell in zip(columns, cells):
        row.setdefault(column, cell)
    return row


def value(cell: str) -> float | None:
    """The median in a cell."""
    found = re.match(r"-?[\d.]+", cell)
    return float(found.group()) if found else None


def median(cell: str) -> str:
    return cell.split(" (")[0]


def best_peer(row: dict[str, str]) -> tuple[float, str] | None:
    peers = [(v, name) for name, cell in row.items() if not name.startswith(OURS) and (v := value(cell)) is not None]
    return min(peers, default=None)


def sources_table() -> str:
    """Command, date, machine and ebbmalloc's commit of each kind that has a row above."""
    rows = []
    places = set()
    for kind in ("return", "speed", "instructions", "generator", "scale", "python", "python-start", "pyperformance"):
        result = result_of(kind)
        machine = result["machine"]
        commit = re.search(r"commit (\w+)", result["allocators"].get(OURS, ""))
        places.add(f"{machine['cpus_usable']} cores of {processor_of(machine['cpu'])}, Linux {machine['kernel']}")
        link = f"[{kind}](benches/results/{kind}.json)"
        rows.append([link, f"`{result['command']}`", result["date"], commit.group(1) if commit else ""])
    return markdown(["kind", "command", "date", "commit"], rows, left=4) + f"\n{'; '.join(sorted(places))}.\n"


def lost_table() -> str:
    """The rows in which a peer is better: in memory by anything, in time by a tenth."""
    rows = []
    memory = "MiB above the live heap, 5 s after the burst"
    for label, row in table_of("return", memory).items():
        peer, ours = best_peer(row), value(row[OURS])
        if peer and ours is not None and ours > peer[0]:
            rows.append(["return", label, "MiB after 5 s", median(row[OURS]), f"{peer[0]:.1f} ({peer[1]})"])
    for label, row in table_of("speed", "ebbmalloc over each row's best peer").items():
        if (ratio := value(row["time"])) and (ratio >= LOST or "lost" in row["time"] + row["CPU time"]):
            rows.append(["speed", label, "time over the best", row["time"], row["best peer"]])
    for label, row in table_of("scale", "Threads").items():
        peer, ours = best_peer(row), value(row[OURS])
        if peer and ours and ours >= LOST * peer[0]:
            rows.append(["scale", label, "ns an operation", row[OURS], f"{row[peer[1]]} {peer[1]}"])
    for label, row in table_of("python-start", "Start: milliseconds").items():
        rows.append(["python-start", f"`{label.strip('`')}`", "ms", row[OURS], f"{row['glibc']} glibc"])
    for label, row in table_of("pyperformance", "pyperformance").items():
        for column, name in (("time", "time"), ("peak of resident memory", "peak")):
            if label not in ("most", "geometric mean of 30") and value(row[column]) >= LOST:
                rows.append(["pyperformance", label, f"{name} over `python:off`", row[column], ""])
    head = ["kind", "row", "figure", "ebbmalloc", "best peer"]
    return markdown(head, rows, left=3)


def memory_table() -> str:
    """Above the live heap 5 s after a burst, for the rows that every allocator ran."""
    title = "MiB above the live heap, 5 s after the burst"
    bounds = table_of("return", "The bound")
    rows = []
    for label, row in table_of("return", title).items():
        if all(value(cell) is not None for cell in row.values()):
            rows.append([label, *(median(cell) for cell in row.values()), median(bounds[label][OURS])])
            names = list(row)
    return markdown(["MiB", *names, "bound"], rows)


def time_table() -> str:
    """Geometric means of the rows of speed, and instructions."""
    counted = table_of("instructions", "")
    rows = []
    for name, row in table_of("speed", "Geometric means").items():
        calls = counted.get(name, {})
        cells = [row["time over the row's best"], row["over the best single peer"], row["peak over glibc's, rows above 20 MiB"]]
        calls = [calls.get(call, "") if value(calls.get(call, "")) else "" for call in ("malloc", "free")]
        rows.append([name, *cells, *calls])
    head = [
        "allocator",
        "time over each row's best",
        "over the best single peer",
        "peak over glibc's",
        "instructions of malloc",
        "of free",
    ]
    return markdown(head, rows)


# Kind, beginning of the table's title, row, what the figure is.
FURTHER = [
    ("generator", "Seeds", "within 20% of the bound plus 2 MiB", "drawn bursts within 20 % of the bound plus 2 MiB"),
    ("generator", "Seeds", "most", "most MiB above the bound"),
    (
        "scale",
        "Latency of a call while memory is returned: p99, ns",
        "latency, wall clock",
        "p99 of a call while memory returns, ns",
    ),
    ("scale", "Latency of a call while memory is returned: p99.9, ns", "latency, wall clock", "p99.9, ns"),
    ("scale", "The longest call", "latency, wall clock", "longest call, µs"),
    ("scale", "Forked workers: MiB of PSS after", "4 forked workers", "4 forked workers after they freed, MiB of PSS"),
    ("scale", "Steady load: the allocator's own", "100 requests a second", "own threads at 100 requests/s, % of CPU"),
    ("scale", "Steady load: page faults", "100 requests a second", "page faults per request then"),
    ("scale", "Heap: CPU milliseconds a second", "heap of 1024 MiB", "own threads, heap of 1 GiB, ms CPU per s"),
    ("python", "Burst: MB above the start, 6 s", "burst, python3.11", "CPython 3.11, MB above the start 6 s after a burst"),
    ("python", "Burst: MB above the start, 6 s", "burst, python3.13 of 3.13.0", "CPython 3.13, the same"),
    ("python-start", "Start: milliseconds", "python -c pass", "start of `python -c pass`, ms"),
]


def further_table() -> str:
    """One line each of the other kinds."""
    rows = []
    for kind, title, label, what in FURTHER:
        table = table_of(kind, title)
        row = table.get(label) or table.get(f"`{label}`") or {name: cells[label] for name, cells in table.items()}
        cells = (row.get(name, "") for name in ("glibc", "jemalloc-new-1s", "mimalloc-3", OURS))
        rows.append([what, *(median(cell) for cell in cells)])
    head = ["figure", "glibc", "jemalloc, decay 1 s", "mimalloc 3", OURS]
    return markdown(head, rows)


# --- Hosts

# Columns: architecture, whether with the release's own kernel, bytes of a page.
HOSTS = {
    "x86-64": ("x86_64", False, 4096),
    "own kernel": ("x86_64", True, 4096),
    "aarch64, 4 KiB": ("aarch64", True, 4096),
    "16 KiB": ("aarch64", True, 16384),
    "64 KiB": ("aarch64", True, 65536),
}


def hosts_table() -> str:
    """A row for each libc: on each kind of host how many cases of the suite passed of those that ran; then what failed."""
    result = json.loads((ROOT / "ci/hosts/result.json").read_text())
    cells: dict[tuple[str, str], dict[str, str]] = {}
    kernels: dict[tuple[str, str], str] = {}
    failed = []
    builds: dict[str, list[str]] = {}
    for host in result["hosts"]:
        kind = (host["arch"], host["emulated"], host["page_bytes"])
        column = next(name for name, wanted in HOSTS.items() if wanted == kind)
        columns = builds.setdefault(f"{host['date']}, commit {host['commit']}", [])
        columns += [column] if column not in columns else []
        kernel = ".".join(host["kernel"].split(".")[:2])
        for libc, said in host["libcs"].items():
            row = (libc, said["version"])
            cells.setdefault(row, {})[column] = f"{said['cases'] - len(said['failed'])}/{said['cases']}"
            if host["emulated"]:
                kernels[row] = kernel
            wrong = said["failed"] | {f"ebb {what}": said[key] for what, key in (("why", "why"), ("run --verify", "verify")) if said[key]}
            failed += [f"- {libc} {said['version']}, {column}: `{name}`: {reason}" for name, reason in wrong.items()]
    rows = [
        [f"{libc} {version}", kernels.get((libc, version), ""), *(cells[libc, version].get(column, "") for column in HOSTS)]
        for libc, version in sorted(cells, key=lambda row: (row[0], [int(part) for part in row[1].split(".")]))
    ]
    built = "; ".join(f"{build}: {', '.join(columns)}" for build, columns in builds.items())
    told = f"`{result['command']}`, {processor_of(result['machine'])}. {built}."
    return markdown(["libc", "kernel", *HOSTS], rows, left=2) + "\n" + "\n".join([*failed, *([""] if failed else []), told]) + "\n"


# --- Pages

NAMES: dict[str, Callable[..., str]] = {
    "trial": trial_table,
    "workloads": workloads_table,
    "leaky": leaky_table,
    "lost": lost_table,
    "memory": memory_table,
    "time": time_table,
    "further": further_table,
    "sources": sources_table,
    "hosts": hosts_table,
}


def pages() -> list[Path]:
    found = [ROOT / "README.md", ROOT / "BENCHMARKS.md", ROOT / "workloads/README.md", ROOT / "docs/hosts.md"]
    # The first one's table is in README.md.
    return found + [ROOT / f"workloads/{name}/README.md" for name in WORKLOADS[1:]]


def renewed(page: str) -> str:
    """The page with every table made anew."""

    def table(place: re.Match) -> str:
        name, *words = place.group(2).split()
        return f"{place.group(1)}{NAMES[name](*words)}{place.group(3)}"

    return PLACE.sub(table, page)


def main() -> int:
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        print(__doc__, file=sys.stderr)
        return 64
    status = 0
    for path in pages():
        text = path.read_text()
        if (new := renewed(text)) == text:
            continue
        name = path.relative_to(ROOT)
        if check:
            print(f"{name}: a table is not that of the results; ci/tables.py writes it", file=sys.stderr)
            status = 1
        else:
            path.write_text(new)
            print(f"{name}: tables renewed", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
