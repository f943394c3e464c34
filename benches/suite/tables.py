"""Tables of medians in Markdown: one row a job, one column an allocator, our worst rows first."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from . import intervals, markdown
from .allocators import OURS


@dataclass(frozen=True)
class Figure:
    """What a table shows of each run; the lower the better, unless it only informs."""

    title: str
    of: Callable[[dict], float | None]
    digits: int = 1


def present(trial, job, allocator, figure: Figure) -> list[float]:
    """The figure of each run that has it."""
    found = (figure.of(run) for run in trial.of(job, allocator))
    return [value for value in found if value is not None]


def medians(trial, job, allocators: list, figure: Figure) -> dict[str, float]:
    """By allocator's name, those with at least one figure."""
    values = {a.name: present(trial, job, a, figure) for a in allocators}
    return {name: statistics.median(v) for name, v in values.items() if v}


def best_peer(found: dict[str, float]) -> str | None:
    """Its name; special variants of ours are no peers."""
    peers = {name: value for name, value in found.items() if not name.startswith(OURS)}
    return min(peers, key=peers.get) if peers else None


def loss(trial, job, allocators: list, figure: Figure) -> float:
    """How far ours is above the row's best peer, in the figure's unit; lowest where there is nothing to compare."""
    found = medians(trial, job, allocators, figure)
    best = best_peer(found)
    return found[OURS] - found[best] if best and OURS in found else float("-inf")


def losing_first(jobs: list, trial, allocators: list, figure: Figure, relative: bool = False) -> list:
    """The jobs, those on top in which ours is farthest above the best peer."""

    def key(job):
        if relative:
            return -relative_loss(trial, job, allocators, figure)
        return -loss(trial, job, allocators, figure)

    return sorted(jobs, key=key)


def relative_loss(trial, job, allocators: list, figure: Figure) -> float:
    """Ours over the best peer's; 0 where there is nothing to compare."""
    found = medians(trial, job, allocators, figure)
    best = best_peer(found)
    return found[OURS] / found[best] if best and OURS in found and found[best] > 0 else 0.0


def cell(values: list[float], digits: int) -> str:
    """Median and its interval; the interval is left out where it rounds to the median."""
    if not values:
        return "failed"
    low, middle, high = (f"{v:.{digits}f}" for v in intervals.median(values))
    return middle if low == high else f"{middle} ({low}-{high})"


def table(jobs: list, allocators: list, trial, figure: Figure) -> str:
    """A row that an allocator was not meant for has a dash."""
    lines = []
    for job in jobs:
        cells = []
        for allocator in allocators:
            if not job.takes(allocator):
                cells.append("-")
            elif not allocator.available():
                cells.append("not installed")
            else:
                cells.append(cell(present(trial, job, allocator, figure), figure.digits))
        lines.append([job.label, *cells])
    return markdown(["", *(a.name for a in allocators)], lines)


def titled(jobs: list, allocators: list, trial, figure: Figure) -> str:
    """Heading and table, without columns in which no row was meant to run."""
    columns = [a for a in allocators if any(job.takes(a) for job in jobs)]
    return f"### {figure.title}\n\n{table(jobs, columns, trial, figure)}\n"
