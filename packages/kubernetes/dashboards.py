#!/usr/bin/env python3
"""Writes the Grafana dashboards, files/{node,workload,fleet}.json, from the tables below.

    packages/kubernetes/dashboards.py

A panel is a title, a unit, its queries as pairs of expression and legend, and what one should know about it.
"""

import json
from pathlib import Path

FILES = Path(__file__).resolve().parent / "files"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
# Names of a group on this node.
NAMED = "* on (instance, cgroup) group_left (namespace, pod, container, workload) ebb:group:workload"
NODE = 'job=~"$job", instance=~"$instance"'
OWN = 'namespace=~"$namespace", workload=~"$workload"'
POD = "{{pod}} {{container}}"


def named(metric: str, matchers: str = NODE) -> str:
    return f"{metric}{{{matchers}}} {NAMED}"


def of_workload(metric: str, matchers: str = "") -> str:
    """Its groups, by pod and container."""
    chosen = f"ebb:group:workload{{{OWN}}}"
    job = ", ".join(filter(None, ['job=~"$job"', matchers]))
    return f"{metric}{{{job}}} * on (instance, cgroup) group_left (namespace, pod, container, workload) {chosen}"


NODES = [
    ("Usage of all groups", "bytes", [(f"sum by (instance) (ebb_group_usage_bytes{{{NODE}}})", "{{instance}}")],
     "What the kernel charges to groups with processes."),
    ("Live, returnable and pinned", "bytes", [
        (f"sum(ebb_group_live_bytes{{{NODE}}})", "live"),
        (f"sum(ebb_group_returnable_bytes{{{NODE}}})", "returnable"),
        (f"sum(ebb_group_pinned_bytes{{{NODE}}})", "pinned")],
     "From the last look at each heap. Returnable: free, and the allocator could return it now."),
    ("Memory by line", "bytes", [(f"sum by (line) (ebb_group_memory_bytes{{{NODE}}})", "{{line}}")],
     "The ledger of ebb why; docs/causes.md explains each line."),
    ("Most returnable", "bytes", [(f"topk(10, {named('ebb_group_returnable_bytes')})", "{{workload}} {{pod}}")],
     "Ten groups; ebb why says which allocator holds it."),
    ("Nearest to the limit", "percentunit", [(
        f"topk(10, ebb_group_usage_bytes{{{NODE}}} / ebb_group_limit_bytes{{{NODE}}} {NAMED})", "{{workload}} {{pod}}")],
     "Usage as a share of the group's limit."),
    ("OOM kills", "short", [(f"sum by (cgroup) (increase(ebb_group_oom_kills_total{{{NODE}}}[$__rate_interval])) > 0 or "
                             f"0 * sum(ebb_group_processes{{{NODE}}})", "{{cgroup}}")], "Kills in the interval."),
    ("Processor time of the agent", "percentunit", [(
        f"rate(ebb_agent_cpu_seconds_total{{{NODE}}}[$__rate_interval])", "{{instance}}")], "Share of one core; its budget is 0.5 %."),
    ("Memory of the agent", "bytes", [(f"ebb_agent_resident_bytes{{{NODE}}}", "{{instance}}")], "Resident; at most 64 MiB."),
    ("Duration of looks", "s", [(
        f"histogram_quantile(0.99, sum by (le) (rate(ebb_agent_look_seconds_bucket{{{NODE}}}[$__rate_interval])))", "p99"),
        (f"histogram_quantile(0.5, sum by (le) (rate(ebb_agent_look_seconds_bucket{{{NODE}}}[$__rate_interval])))", "median")],
     "A look holds no lock of its target for this long; docs/metrics.md has the bound."),
    ("Looks and skips", "ops", [
        (f"sum(rate(ebb_agent_looks_total{{{NODE}}}[$__rate_interval]))", "looks"),
        (f"sum by (reason) (rate(ebb_agent_skips_total{{{NODE}}}[$__rate_interval]))", "skipped: {{reason}}")],
     "What the agent left out, and why."),
    ("Age of the oldest look", "s", [(
        f"max by (instance) (time() - ebb_group_look_timestamp_seconds{{{NODE}}})", "{{instance}}")],
     "Figures of heaps are as old as their look."),
    ("Missing rights", "short", [(f"sum by (right) (ebb_agent_missing_right{{{NODE}}}) or "
                                  f"0 * sum(ebb_agent_build_info{{{NODE}}})", "{{right}}")],
     "docs/containers.md says how to grant each."),
]

WORKLOADS = [
    ("Usage, live and returnable", "bytes", [
        (f"sum(ebb:workload_usage_bytes:sum{{{OWN}}})", "usage"),
        (f"sum(ebb:workload_live_bytes:sum{{{OWN}}})", "live"),
        (f"sum(ebb:workload_returnable_bytes:sum{{{OWN}}})", "returnable")],
     "All pods. The distance between usage and live is what another allocator may save."),
    ("Memory by line", "bytes", [(f"sum by (line) ({of_workload('ebb_group_memory_bytes')})", "{{line}}")],
     "The ledger of ebb why, all pods."),
    ("Usage by pod", "bytes", [(of_workload("ebb_group_usage_bytes"), POD)], "With the limit, the peak and the kills below."),
    ("Returnable by pod", "bytes", [(of_workload("ebb_group_returnable_bytes"), POD)],
     "A pod that differs from its siblings is worth a look: ebb why."),
    ("Share of the limit", "percentunit", [
        (f"{of_workload('ebb_group_usage_bytes')} / on (instance, cgroup) group_left ebb_group_limit_bytes{{job=~\"$job\"}}", POD)],
     "Usage as a share of the limit."),
    ("Peak", "bytes", [(of_workload("ebb_group_peak_bytes"), POD)], "Highest usage since the group began."),
    ("Growth of the live heap", "Bps", [
        (of_workload("ebb_group_live_slope_bytes_per_second"), POD),
        (of_workload("ebb_group_live_slope_bytes_per_second_low"), f"{POD} low"),
        (of_workload("ebb_group_live_slope_bytes_per_second_high"), f"{POD} high")],
     "With its interval of 95 %. A leak is suspected where the lower end stays above 0."),
    ("OOM kills", "short", [(f"sum by (pod, container) ({of_workload('ebb_group_oom_kills_total')})", POD)],
     "Since the group began."),
    ("Allocators", "short", [(
        f"count by (allocator, in_charge) ({of_workload('ebb_group_info')})", "{{allocator}}, in charge: {{in_charge}}")],
     "Containers by allocator: how far a rollout is."),
    ("Usage per container, by allocator", "bytes", [(
        "avg by (allocator) (" + of_workload("ebb_group_usage_bytes").replace(" *", " * on (instance, cgroup) group_left (allocator) "
                                                                              'ebb_group_info{job=~"$job"} *', 1) + ")", "{{allocator}}")],
     "A first view of a canary; ebb compare --live --prometheus judges it."),
]

FLEET = [
    ("Returnable in the fleet", "bytes", [
        ("sum(ebb:workload_usage_bytes:sum)", "usage"), ("sum(ebb:workload_live_bytes:sum)", "live"),
        ("sum(ebb:workload_returnable_bytes:sum)", "returnable")], "All nodes with an agent."),
    ("Containers by allocator", "short", [(
        'count by (allocator, in_charge) (ebb_group_info{job=~"$job"})', "{{allocator}}, in charge: {{in_charge}}")],
     "How far a rollout is."),
    ("Workloads that hold most", "bytes", [("topk(20, ebb:workload_returnable_bytes:sum)", "{{namespace}} {{workload}}")],
     "ebb fleet rank says what a change would save, and how certain that is."),
    ("Share that is returnable", "percentunit", [(
        "topk(20, ebb:workload_returnable_bytes:sum / ebb:workload_usage_bytes:sum)", "{{namespace}} {{workload}}")],
     "Returnable as a share of usage."),
    ("Suspected leaks", "Bps", [(
        f"topk(20, max by (namespace, workload) ({of_workload('ebb_group_live_slope_bytes_per_second_low')} > 0))"
        .replace(f"{{{OWN}}}", ""), "{{namespace}} {{workload}}")],
     "Lower end of the slope of live bytes, where it is above 0."),
    ("Not in charge", "short", [(
        'count by (allocator) (ebb_group_info{job=~"$job", in_charge="no"}) or 0 * count(ebb_group_info{job=~"$job"})', "{{allocator}}")],
     "Containers whose preloaded allocator does not serve malloc, by the one that does."),
    ("Nodes by version of the agent", "short", [(
        'count by (version) (ebb_agent_build_info{job=~"$job"})', "{{version}}")], "Nodes without an agent are not counted."),
    ("Dearest agents", "percentunit", [(
        'topk(10, rate(ebb_agent_cpu_seconds_total{job=~"$job"}[$__rate_interval]))', "{{instance}}")], "Share of one core."),
]


def variable(name: str, query: str) -> dict:
    return {"name": name, "label": name, "type": "query", "datasource": SOURCE, "query": query, "definition": query, "refresh": 2,
            "includeAll": True, "multi": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}, "sort": 1}


JOB = variable("job", "label_values(ebb_agent_build_info, job)")
DASHBOARDS = {
    "node": ("ebb: node", NODES, [JOB, variable("instance", 'label_values(ebb_agent_build_info{job=~"$job"}, instance)')]),
    "workload": ("ebb: workload", WORKLOADS, [
        JOB, variable("namespace", "label_values(ebb:group:workload, namespace)"),
        variable("workload", 'label_values(ebb:group:workload{namespace=~"$namespace"}, workload)')]),
    "fleet": ("ebb: fleet", FLEET, [JOB]),
}


def panel(number: int, title: str, unit: str, queries: list[tuple[str, str]], description: str) -> dict:
    targets = [{"refId": chr(ord("A") + at), "expr": expr, "legendFormat": legend, "datasource": SOURCE}
               for at, (expr, legend) in enumerate(queries)]
    return {
        "id": number + 1, "type": "timeseries", "title": title, "description": description, "datasource": SOURCE,
        "gridPos": {"x": number % 2 * 12, "y": number // 2 * 8, "w": 12, "h": 8},
        "fieldConfig": {"defaults": {"unit": unit, "min": None if unit == "Bps" else 0}, "overrides": []}, "targets": targets,
    }


def dashboard(name: str) -> str:
    title, panels, variables = DASHBOARDS[name]
    source = {"name": "datasource", "label": "data source", "type": "datasource", "query": "prometheus"}
    whole = {
        "uid": f"ebb-{name}", "title": title, "tags": ["ebb"], "schemaVersion": 39, "editable": True, "refresh": "1m",
        "time": {"from": "now-6h", "to": "now"}, "templating": {"list": [source, *variables]},
        "links": [{"type": "dashboards", "title": "ebb", "tags": ["ebb"], "asDropdown": True}],
        "panels": [panel(at, *row) for at, row in enumerate(panels)],
    }
    return json.dumps(whole, indent=1) + "\n"


def main() -> None:
    for name in DASHBOARDS:
        (FILES / f"{name}.json").write_text(dashboard(name))


if __name__ == "__main__":
    main()
