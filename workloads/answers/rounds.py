"""What each round of a load held, from a trial's results.json: the second peak beside the first.

python -m answers.rounds results.json tells, for every run that counts, the highest sample of each
loaded phase and of the last second of each rest: the sum of the processes' RSS, and of their PSS,
in MB.
"""

import argparse
import json
from pathlib import Path
import sys
from typing import Any

LOADED = ("load", "burst", "reload")


def rounds(run: dict[str, Any]) -> list[list[str]]:
    """Phase, round, highest RSS and highest PSS."""
    found = []
    for phase in run["phases"]:
        if phase["kind"] not in (*LOADED, "idle"):
            continue
        within = [s for s in run["samples"] if phase["from_s"] <= s["at_s"] <= phase["to_s"]]
        if phase["kind"] == "idle":
            # The state at its end: the last second.
            within = [s for s in within if s["at_s"] >= phase["to_s"] - 1.0]
        figures = [highest(within, field) for field in ("rss_bytes", "pss_bytes")]
        found.append([phase["name"], str(phase["round"]), *figures])
    return found


def highest(samples: list[dict[str, Any]], field: str) -> str:
    """The highest value in MB; a dash where there is none."""
    values = [sample[field] for sample in samples if sample.get(field) is not None]
    return f"{max(values) / 1e6:.1f}" if values else "-"


def main() -> int:
    """Prints a table in Markdown; 1 where the file is no trial's results."""
    parser = argparse.ArgumentParser(prog="answers.rounds", description=__doc__)
    parser.add_argument("results", type=Path, help="results.json of a trial")
    args = parser.parse_args()
    try:
        trial = json.loads(args.results.read_text())
        lines = [
            f"| {variant['name']} | {run['repetition']} | {' | '.join(row)} |"
            for variant in trial["variants"]
            for run in variant["runs"]
            if run["outcome"]["kind"] == "complete"
            for row in rounds(run)
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"{args.results}: not the results of a trial: {error!r}", file=sys.stderr)
        return 1
    print("| variant | run | phase | round | RSS MB | PSS MB |")
    print("|---|---:|---|---:|---:|---:|")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
