"""Steps in what a service holds after each rest: a floor that rises once and stays is no slope.

python -m answers.steps results.json tells them for every run of a trial with many cycles: the mark
`after_rest` is there once a cycle. A step is where the median of the rests after it lies above that
of the rests before it by at least a size, and by more than these vary among themselves.
"""

import argparse
from dataclasses import dataclass
import json
from pathlib import Path
from statistics import mean, median
import sys

MB = 1e6
WINDOW = 5
"""Rests on either side that are compared: one that is high by chance is no step."""

LEAST_RATIO = 6
"""Of a rise to the spread around it. A straight slope has a ratio of 5 over windows of 5."""


@dataclass(frozen=True, slots=True)
class Step:
    """One rise."""

    cycle: int
    """The first cycle after it, from 1."""
    mb: float


def steps(rests_mb: list[float], least_mb: float = 0.5) -> list[Step]:
    """The steps in a series of rests, in order."""
    places = [at for at in range(2, len(rests_mb) - 1) if rise_at(rests_mb, at) >= least_mb]

    def sharpness(at: int) -> float:
        # Next to a step the medians see it too; means see how much of it is on the wrong side.
        before, after = around(rests_mb, at)
        return mean(after) - mean(before)

    found: list[Step] = []
    for at in sorted(places, key=sharpness, reverse=True):
        if all(abs(at + 1 - step.cycle) >= WINDOW for step in found):
            found.append(Step(at + 1, rise_at(rests_mb, at)))
    return sorted(found, key=lambda step: step.cycle)


def rise_at(rests_mb: list[float], at: int) -> float:
    """How far the rests from this place on lie above those before; 0 where that is their noise."""
    before, after = around(rests_mb, at)
    rise = median(after) - median(before)
    return rise if rise > LEAST_RATIO * max(spread(before), spread(after)) else 0.0


def around(rests_mb: list[float], at: int) -> tuple[list[float], list[float]]:
    """The rests before a place, and from it on."""
    return rests_mb[max(0, at - WINDOW) : at], rests_mb[at : at + WINDOW]


def spread(values: list[float]) -> float:
    """The median distance from the median."""
    middle = median(values)
    return median(abs(value - middle) for value in values)


def main() -> int:
    """Tells the steps of every run."""
    parser = argparse.ArgumentParser(prog="answers.steps", description=__doc__)
    parser.add_argument("results", type=Path, help="results.json of a trial")
    parser.add_argument("--least", type=float, default=0.5, help="smallest step, in MB")
    args = parser.parse_args()
    try:
        trial = json.loads(args.results.read_text())
        runs = [(variant["name"], run) for variant in trial["variants"] for run in variant["runs"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"{args.results}: not the results of a trial: {error!r}", file=sys.stderr)
        return 1
    for name, run in runs:
        marks = [mark for mark in run["marks"] if mark["name"] == "after_rest"]
        rests = [mark["bytes"] / MB for mark in marks if mark["bytes"] is not None]
        if len(rests) < 2 * WINDOW:
            print(f"{name}, run {run['repetition']}: {len(rests)} rests are too few for steps")
            continue
        found = [f"+{step.mb:.1f} MB at cycle {step.cycle}" for step in steps(rests, args.least)]
        print(
            f"{name}, run {run['repetition']}: {rests[0]:.1f} to {rests[-1]:.1f} MB in "
            f"{len(rests)} rests; {', '.join(found) or 'no step'}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
