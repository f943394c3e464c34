"""Pictures of a folder of results, from its raw data: SVG, the same bytes for the same data."""

import json
import statistics
from pathlib import Path

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402

from .allocators import OURS  # noqa: E402
from .timings import time_of  # noqa: E402

MIB = 2**20
RATIO_MOST = 5
OURS_COLOUR = "#c0392b"
# Told apart by marker and dash too, not by colour alone.
STYLES = [(colour, dash) for dash in ("-", "--", ":") for colour in ("#4c72b0", "#55a868", "#8172b3", "#937860", "#777777")]
matplotlib.rcParams |= {"svg.hashsalt": "benches", "svg.fonttype": "none", "font.size": 8, "axes.spines.top": False}
matplotlib.rcParams |= {"axes.spines.right": False, "legend.frameon": False}


def records(raw: Path) -> list[dict]:
    """The runs that count."""
    return [r for r in map(json.loads, raw.read_text().splitlines()) if "trouble" not in r]


def _style(name: str, names: list[str]) -> dict:
    if name == OURS:
        return {"color": OURS_COLOUR, "linewidth": 2.2, "zorder": 5}
    colour, dash = STYLES[[n for n in names if n != OURS].index(name) % len(STYLES)]
    return {"color": colour, "linestyle": dash, "linewidth": 1}


def _corners(points: list[tuple]) -> list[tuple]:
    """The points without those inside a level stretch."""
    inner = zip(points, points[1:], points[2:])
    return [points[0], *(b for a, b, c in inner if not a[1] == b[1] == c[1]), *points[1:][-1:]]


def memory_over_time(raw: Path, target: Path, rows_most: int = 8) -> bool:
    """A panel a row: MiB above the live heap, each allocator's first run, and our run's bound."""
    runs = records(raw)
    rows = [row for row in dict.fromkeys(r["job"] for r in runs) if "," not in row][:rows_most]
    names = list(dict.fromkeys(r["allocator"] for r in runs))
    if not rows:
        return False
    columns = min(4, len(rows))
    height = -(-len(rows) // columns)
    figure, panels = pyplot.subplots(height, columns, figsize=(2.6 * columns, 2.3 * height + 0.6), squeeze=False, sharex=True)
    for panel in panels.flat[len(rows) :]:
        panel.set_visible(False)
    lines = {}
    for panel, row in zip(panels.flat, rows):
        for name in names:
            run = next((r for r in runs if r["job"] == row and r["allocator"] == name), None)
            if run:
                at_s, above = zip(*_corners([(s[0], s[-1] / MIB) for s in run["samples"]]))
                (lines[name],) = panel.plot(at_s, above, **_style(name, names))
                if name == OURS:
                    lines["its bound"] = panel.axhline(run["bound_above_live_bytes"] / MIB, color="black", linewidth=0.6)
        panel.set_title(row)
        panel.set_ylim(bottom=0)
    figure.supxlabel("seconds after the burst")
    figure.supylabel("MiB above the live heap")
    figure.legend(
        lines.values(), lines.keys(), loc="lower center", bbox_to_anchor=(0.5, 0.9), ncols=min(2 * columns, len(lines))
    )
    figure.tight_layout(rect=(0.02, 0.0, 1, 0.9))
    figure.savefig(target, metadata={"Date": None}, bbox_inches="tight")
    pyplot.close(figure)
    return True


def times(raw: Path, target: Path) -> bool:
    """A line a row: each allocator's median time over the row's best, ours marked; the worst of ours on top."""
    found: dict[str, dict[str, list[float]]] = {}
    for run in records(raw):
        found.setdefault(run["job"], {}).setdefault(run["allocator"], []).append(time_of(run))
    if not found:
        return False
    ratios = {}
    for row, by_name in found.items():
        medians = {name: statistics.median(values) for name, values in by_name.items()}
        best = min(medians.values())
        ratios[row] = {name: value / best for name, value in medians.items()}
    rows = sorted(ratios, key=lambda row: ratios[row].get(OURS, 0))
    names = list(dict.fromkeys(name for by_name in ratios.values() for name in by_name))
    figure, panel = pyplot.subplots(figsize=(8, 0.19 * len(rows) + 1.3))
    for number, name in enumerate(names):
        points = [(min(ratios[row][name], RATIO_MOST), y) for y, row in enumerate(rows) if name in ratios[row]]
        style = _style(name, names)
        marker = "D" if name == OURS else "ovs^<>Pp*hX"[number % 11]
        panel.scatter(
            *zip(*points),
            label=name,
            marker=marker,
            color=style["color"],
            s=34 if name == OURS else 14,
            zorder=style.get("zorder", 2),
        )
    panel.set_yticks(range(len(rows)), rows)
    panel.set_xscale("log")
    ticks = [1, 1.2, 1.5, 2, 3, RATIO_MOST]
    panel.set_xticks(ticks, [*(f"{t:g}" for t in ticks[:-1]), f"{RATIO_MOST:g} or more"])
    panel.minorticks_off()
    panel.axvline(1, color="black", linewidth=0.6)
    panel.set_xlabel("time over the row's best (1 is the fastest)")
    panel.legend(loc="lower center", bbox_to_anchor=(0.4, 1), ncols=6)
    figure.tight_layout()
    figure.savefig(target, metadata={"Date": None}, bbox_inches="tight")
    pyplot.close(figure)
    return True
