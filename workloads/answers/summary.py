"""The last line of a load: what `ebb compare` reads of it (docs/workload.md)."""

from collections.abc import Iterable
from dataclasses import dataclass, field
import json
import math
import sys


@dataclass(slots=True)
class Outcome:
    """What one phase of load saw."""

    latencies_ms: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    seconds: float = 0.0


def report(outcome: Outcome, most_errors: int = 20) -> int:
    """Prints errors and the summary; the exit status, which fails the run where anything failed."""
    for error in outcome.errors[:most_errors]:
        print(error, file=sys.stderr)
    latencies = sorted(outcome.latencies_ms)
    summary: dict[str, object] = {
        "requests": len(latencies) + len(outcome.errors),
        "errors": len(outcome.errors),
        "seconds": round(outcome.seconds, 3),
    }
    if latencies:
        summary["latency_ms"] = {"p50": round(quantile(latencies, 0.50), 1), "p99": round(quantile(latencies, 0.99), 1)}
        summary["histogram_ms"] = histogram(latencies)
    print(json.dumps(summary))
    return 1 if outcome.errors else 0


def quantile(ordered: list[float], share: float) -> float:
    """The smallest value that at least this share of all values does not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def histogram(values: Iterable[float]) -> list[list[float]]:
    """Pairs of an upper bound and a count; bounds grow by an eighth of a power of two."""
    counts: dict[int, int] = {}
    for value in values:
        step = math.ceil(8 * math.log2(max(value, 1.0)))
        counts[step] = counts.get(step, 0) + 1
    return [[round(2 ** (step / 8), 3), count] for step, count in sorted(counts.items())]
