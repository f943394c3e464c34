#!/usr/bin/env python3
"""Keeps the figures of a trial beside its workload, and renews the tables that are made of them.

    workloads/publish.py results/sse [--as NAME] [--note TEXT]

results/sse is what `ebb compare -o` wrote. Its medians, spreads, machine and command go into
workloads/WORKLOAD/result.json under NAME (the profile), in place of an older trial of that name.
Samples, logs and the HTML page stay where they are. `ci/tables.py` then writes the tables of the
pages.
"""

import argparse
import json
from pathlib import Path
import shlex
import subprocess
import sys
from typing import Any

HERE = Path(__file__).resolve().parent
MB = 1_000_000
Json = dict[str, Any]
# Of a summary's figures, the ones that are kept: their names, and what one unit of the file is.
KEPT = {
    "baseline": ("baseline_mb", MB),
    "peak": ("peak_mb", MB),
    "after_rest": ("after_rest_mb", MB),
    "reclaimable": ("reclaimable_mb", MB),
    "live": ("live_mb", MB),
    "cpu": ("cpu_s", 1),
    "cpu_system": ("cpu_system_s", 1),
    "page_faults": ("page_faults", 1),
    "refaults": ("refaults", 1),
    "throughput": ("requests_per_s", 1),
    "p50": ("p50_ms", 1),
    "p99": ("p99_ms", 1),
}
# Above this share of the processors other programs disturb a run, as `ebb compare` says.
DISTURBED = 0.1


def short(value: float) -> float | int:
    """Four digits: more than a table shows."""
    rounded = float(f"{value:.4g}")
    return int(rounded) if abs(rounded) >= 1000 else rounded


def figures(summary: Json) -> Json:
    """[median, lowest, highest] of each figure; a difference to the first variant with interval."""
    kept: Json = {}
    for name, (key, unit) in KEPT.items():
        figure = summary["figures"].get(name)
        if figure:
            kept[key] = [short(figure[part] / unit) for part in ("median", "min", "max")]
    versus = (summary["figures"].get("cpu") or {}).get("versus_first")
    if versus and versus["interval"]:
        kept["cpu_s_difference"] = [short(value) for value in (versus["value"], *versus["interval"])]
    return kept


def disturbance(variants: list[Json]) -> str | None:
    shares = [run["disturbance"]["others_cpu_share"] for v in variants for run in v["runs"] if run.get("disturbance")]
    disturbed = [share for share in shares if share > DISTURBED]
    if not disturbed:
        return None
    most = f"{100 * max(disturbed):.0f} % of the processors"
    return f"in {len(disturbed)} of {len(shares)} runs other programs took up to {most}"


def machine(told: Json) -> str:
    kernel = told["kernel"].split("-")[0]
    memory = f"{told['memory_bytes'] / 1e9:.1f} GB"
    processors = f"{told['cpu']}, {told['processors']} processors"
    return f"{processors}, {memory}, {told['system']}, Linux {kernel}"


def commit(started: str) -> str:
    """The last one before the trial."""
    command = ["git", "-C", str(HERE), "rev-list", "-1", "--abbrev-commit", f"--before={started}", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def name_of(variant: Json) -> str:
    """Its name; of one that hides its allocator, the allocator with its variables."""
    if variant["allocator"].split("-")[0] in variant["name"]:
        return str(variant["name"])
    return "+".join([variant["allocator"], *(f"{key}={value}" for key, value in variant["env"].items())])


def trial(results: Json) -> Json:
    workload = results["workload"]
    shown = [v for v in results["variants"] if v.get("summary")]
    spelled = [v["name"] + ("" if v["name"] == name_of(v) else f"={name_of(v)}") for v in shown]
    command = ["ebb", "compare", f"workloads/{workload['name']}"]
    command += ["--profile", workload["profile"]] if workload["profile"] else []
    command += ["-n", str(results["repetitions"]), "--variants", ",".join(spelled)]
    return {
        "started": results["started"],
        "command": shlex.join(command),
        "commit": commit(results["started"]),
        "machine": machine(results["machine"]),
        "metric": results["metric"],
        "disturbed": disturbance(shown),
        "verdict": results["verdict"]["sentence"],
        "variants": [
            {"name": name_of(v), "environment": v["env"], "runs": v["summary"]["runs"], **figures(v["summary"])}
            for v in shown
        ],
    }


def text_of(trials: Json) -> str:
    """JSON with a variant a line, so that a difference of two versions can be read."""
    parts = []
    for name, kept in sorted(trials.items()):
        head = [f"  {json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in kept.items() if k != "variants"]
        rows = ",\n".join(f"   {json.dumps(v, ensure_ascii=False)}" for v in kept["variants"])
        parts.append(f" {json.dumps(name)}: {{\n" + ",\n".join([*head, f'  "variants": [\n{rows}\n  ]']) + "\n }")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="what ebb compare wrote")
    parser.add_argument("--as", dest="name", help="the trial's name (its profile)")
    parser.add_argument("--note", help="a sentence that the pages show with it")
    given = parser.parse_args()
    results = json.loads((given.folder / "results.json").read_text())
    target = HERE / results["workload"]["name"] / "result.json"
    if not target.parent.is_dir():
        parser.error(f"{results['workload']['name']} is no workload of {HERE}")
    kept = trial(results)
    if given.note:
        kept["note"] = given.note
    trials = json.loads(target.read_text()) if target.exists() else {}
    trials[given.name or results["workload"]["profile"] or "full"] = kept
    target.write_text(text_of(trials))
    return subprocess.run([HERE.parent / "ci/tables.py"]).returncode


if __name__ == "__main__":
    sys.exit(main())
