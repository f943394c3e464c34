"""What a cluster gets: rules and alerts, and each query of the dashboards on a real Prometheus with series of `ebb agent`."""

from collections.abc import Callable
import json
import os
from pathlib import Path
import platform
import re
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import unittest
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from made import ROOT, needs, one

FOLDER = ROOT / "packages/kubernetes"
DASHBOARDS = {path.stem: json.loads(path.read_text()) for path in sorted((FOLDER / "files").glob("*.json"))}
VALUES = {"datasource": "", "job": ".*", "instance": ".*", "namespace": ".*", "workload": ".*", "__rate_interval": "4m"}


def queries():
    """Name of the dashboard, title of the panel, query."""
    for name, dashboard in DASHBOARDS.items():
        for panel in dashboard["panels"]:
            for target in panel["targets"]:
                yield name, panel["title"], target["expr"]


def filled(query: str) -> str:
    for variable, value in VALUES.items():
        query = re.sub(rf"\${variable}\b", value, query)
    return query


def agents() -> list[tuple[str, str, dict, Callable[[int], float]]]:
    """Kind, name, labels and value after N seconds of the series of two nodes: three pods and a unit each. The first has the canary."""
    series = []

    def add(name, value, kind="gauge", **labels):
        series.append((kind, name, labels, value if callable(value) else lambda _: value))

    for node, replicaset, deployment in (("n1", "pay-1a", "pay"), ("n2", "pay-2b", "pay-primary")):
        of_node = {"job": "ebb-agent", "instance": node}
        for number in range(4):
            is_pod = number < 3
            container, pod = f"{node}{number:02}" * 16, f"{replicaset}-{node}{number}"
            group = of_node | {
                "cgroup": f"/kubepods.slice/{container}" if is_pod else "/system.slice/a.service",
                "container_id": container if is_pod else "", "pod_uid": pod if is_pod else "", "unit": "" if is_pod else "a.service"}
            allocator = ("ebbmalloc", "glibc", "jemalloc", "glibc")[number]
            in_charge = ("yes", "yes", "no", "yes")[number]
            add("ebb_group", 1, "info", allocator=allocator, allocator_version="1", in_charge=in_charge, **group)
            for line in ("live", "malloc_trim_would_return", "other"):
                add("ebb_group_memory_bytes", 1e8, line=line, **group)
            for name in ("live", "returnable", "pinned", "usage", "limit", "peak"):
                add(f"ebb_group_{name}_bytes", {"limit": 1e9, "usage": 3e8 if node == "n1" else 2e8}.get(name, 1e8), **group)
            for name, value in (("", 100), ("_low", 50), ("_high", 150)):
                add(f"ebb_group_live_slope_bytes_per_second{name}", value, **group)
            add("ebb_group_processes", 1, **group)
            add("ebb_group_oom_kills", lambda at: at // 600, "counter", **group)
            add("ebb_group_look_timestamp_seconds", time.time() - 100, **group)
            if is_pod:
                names = {"job": "ksm", "instance": "ksm", "namespace": "shop", "pod": pod}
                add("kube_pod_container_info", 1, container="app", container_id=f"containerd://{container}", **names)
                add("kube_pod_owner", 1, owner_kind="ReplicaSet", owner_name=replicaset, **names)
        add("ebb_agent_looks", lambda at: at / 10, "counter", **of_node)
        add("ebb_agent_skips", lambda at: at / 20, "counter", reason="budget", **of_node)
        add("ebb_agent_cpu_seconds", lambda at: at / 300, "counter", **of_node)
        add("ebb_agent_resident_bytes", 3e7, **of_node)
        add("ebb_agent_missing_right", 1, right="sys_ptrace", **of_node)
        add("ebb_agent_build", 1, "info", version="0.1.0", **of_node)
        add("ebb_agent_look_seconds", lambda at: at / 10, "histogram", **of_node)
        add("kube_replicaset_owner", 1, namespace="shop", replicaset=replicaset, owner_kind="Deployment", owner_name=deployment)
    return series


def openmetrics(series, start: int, end: int, step: int = 30) -> str:
    """The text that promtool makes blocks of."""
    lines = []
    for name in dict.fromkeys(name for _, name, _, _ in series):
        own = [it for it in series if it[1] == name]
        kind = own[0][0]
        lines.append(f"# TYPE {name} {kind}")
        for _, _, labels, value in own:
            text = ",".join(f'{key}="{it}"' for key, it in labels.items())
            suffix = {"counter": "_total", "info": "_info"}.get(kind, "")
            for at in range(start, end, step):
                if kind == "histogram":
                    count = value(at - start)
                    lines += [f'{name}_bucket{{{text},le="{le}"}} {count} {at}' for le in ("0.1", "+Inf")]
                    lines += [f"{name}_sum{{{text}}} {count / 20} {at}", f"{name}_count{{{text}}} {count} {at}"]
                else:
                    lines.append(f"{name}{suffix}{{{text}}} {value(at - start)} {at}")
    return "\n".join([*lines, "# EOF\n"])


def free_address() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


class Prometheus:
    """A server on a folder of its own, with our rules each second. It knows a text, or scrapes an address."""

    def __init__(self, folder: Path, text: str = "", scraped: str = ""):
        if text:
            (folder / "text").write_text(text)
            subprocess.run(["promtool", "tsdb", "create-blocks-from", "openmetrics", folder / "text", folder / "data"],
                           check=True, capture_output=True, timeout=120)
        rules = (FOLDER / "files/rules.yaml").read_text().replace("interval: 1m", "interval: 1s")
        (folder / "rules.yaml").write_text(rules)
        jobs = f"[{{job_name: ebb-agent, static_configs: [{{targets: ['{scraped}']}}]}}]" if scraped else "[]"
        (folder / "config.yaml").write_text(
            f"global: {{evaluation_interval: 1s, scrape_interval: 1s}}\nrule_files: [{folder}/rules.yaml]\nscrape_configs: {jobs}\n")
        self.address = free_address()
        self.log = (folder / "log").open("w+")
        self.server = subprocess.Popen(
            ["prometheus", f"--config.file={folder}/config.yaml", f"--storage.tsdb.path={folder}/data", f"--web.listen-address={self.address}"],
            stdout=self.log, stderr=subprocess.STDOUT)

    def ask(self, query: str) -> list:
        with urlopen(f"http://{self.address}/api/v1/query?{urlencode({'query': query})}", timeout=10) as answer:
            return json.load(answer)["data"]["result"]

    def wait_for(self, query: str) -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                if self.ask(query):
                    return
            except (URLError, ConnectionError):
                pass
            time.sleep(0.2)
        self.log.seek(0)
        raise AssertionError(f"no answer to {query} within a minute\n{self.log.read()[-2000:]}")

    def stop(self) -> None:
        self.server.kill()
        self.server.wait()
        self.log.close()


def ebb() -> Path:
    """The program under test: of `make packages`, else of `make build`."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    built = [os.environ.get("EBB_TEST_PROGRAM"), target / f"packed/built/{platform.machine()}/ebb", target / "release/ebb"]
    found = [Path(path) for path in built if path and Path(path).exists()]
    if not found:
        raise unittest.SkipTest("no ebb: make build")
    return found[0]


@needs("prometheus")
class KubernetesQueries(unittest.TestCase):
    def test_rules_and_alerts(self):
        done = subprocess.run(["promtool", "test", "rules", "rules-test.yaml"], cwd=FOLDER, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_each_rule_is_tested(self):
        names = re.findall(r"- (?:record|alert): (\S+)", (FOLDER / "files/rules.yaml").read_text())
        text = (FOLDER / "rules-test.yaml").read_text()
        self.assertEqual([name for name in names if name not in text], [])

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        now = int(time.time())
        cls.server = Prometheus(Path(folder.name), openmetrics(agents(), now - 1800, now))
        cls.addClassCleanup(cls.server.stop)
        cls.server.wait_for("ebb:workload_returnable_bytes:sum")

    def test_what_the_policy_would_do(self):
        def check(selector):
            command = [ebb(), "fix", "--policy", "--check", f"http://{self.server.address}", "--selector", selector]
            return subprocess.run(command, capture_output=True, text=True, timeout=60)

        done = check('namespace="shop",pod=~"pay-1a-.*"')
        heads = [line for line in done.stdout.splitlines() if not line.startswith(" ")]
        self.assertEqual(heads, [
            "may break: shop app, jemalloc, pods: 1", "there: shop app, ebbmalloc, pods: 1", "fits: shop app, glibc, pods: 1"], done.stderr)
        self.assertIn("  pay-1a-n12\n", done.stdout)
        self.assertEqual(done.returncode, 14)
        self.assertEqual(check('pod="pay-1a-n11"').returncode, 0)
        none = check('namespace="nowhere"')
        self.assertEqual((none.returncode, none.stdout), (20, ""))
        self.assertEqual(check("namespace=").returncode, 64)

    def test_each_query_has_an_answer(self):
        server = self.server
        self.assertEqual(len(server.ask('ebb:group:workload{workload="pay"}')), 3)
        for name, title, query in queries():
            with self.subTest(dashboard=name, panel=title):
                self.assertTrue(server.ask(filled(query)), query)
        # The canary on n1 holds half more, and was killed twice a container.
        for name, values in (("argo", ["1.5", "6"]), ("flagger", ["1.5"])):
            found = re.findall(r"query: \|\n(( +).*\n(?:\2.*\n)*)", (FOLDER / f"{name}.yaml").read_text())
            words = {"namespace": "shop", "canary": "1a", "stable": "2b", "target": "pay", "interval": "5m"}
            asked = [re.sub(r"\{\{ ?(?:args\.)?(\w+) ?\}\}", lambda it: words[it[1]], query) for query, _ in found]
            self.assertEqual([server.ask(query)[0]["value"][1] for query in asked], values, name)


@needs("prometheus")
class KubernetesAgent(unittest.TestCase):
    # Kernels without a memory cgroup have no usage, young agents no slopes.
    WITHOUT = ("usage", "limit", "peak", "oom_kills", "slope")

    def test_the_agents_own_series_answer(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        address = free_address()
        agent = subprocess.Popen([ebb(), "agent", "--listen", address, "--every", "1s", "--budget", "20%"], stderr=subprocess.DEVNULL)
        self.addCleanup(agent.wait)
        self.addCleanup(agent.kill)
        server = Prometheus(Path(folder.name), scraped=address)
        self.addCleanup(server.stop)
        server.wait_for("ebb:workload_returnable_bytes:sum and on () rate(ebb_agent_cpu_seconds_total[1m])")
        for name, title, query in queries():
            if not any(word in query for word in self.WITHOUT):
                with self.subTest(dashboard=name, panel=title):
                    self.assertTrue(server.ask(filled(query)), query)


class KubernetesFiles(unittest.TestCase):
    def test_dashboards_are_those_of_their_source(self):
        sys.path.insert(0, str(FOLDER))
        import dashboards

        for name in dashboards.DASHBOARDS:
            self.assertEqual((FOLDER / f"files/{name}.json").read_text(), dashboards.dashboard(name), "run packages/kubernetes/dashboards.py")

    def test_panels_are_complete(self):
        for name, dashboard in DASHBOARDS.items():
            variables = [it["name"] for it in dashboard["templating"]["list"]]
            self.assertEqual(variables[:2], ["datasource", "job"], name)
            titles = [panel["title"] for panel in dashboard["panels"]]
            self.assertEqual(len(titles), len(set(titles)), name)
            for panel in dashboard["panels"]:
                self.assertTrue(panel["title"] and panel["description"] and panel["fieldConfig"]["defaults"]["unit"], panel)
                self.assertEqual(panel["datasource"]["uid"], "${datasource}")
        for name, title, query in queries():
            # Each selector names the job.
            bare = re.findall(r"\bebb_\w+(?!\w|\{[^}]*job=~)", query)
            self.assertEqual(bare, [], f"{name}: {title}: {query}")
            self.assertNotRegex(query, r"\[\d", f"{name}: {title}: a fixed range, not $__rate_interval")
            used = set(re.findall(r"\$(\w+)", query)) - {"__rate_interval"}
            self.assertLessEqual(used, set(it["name"] for it in DASHBOARDS[name]["templating"]["list"]), title)

    def test_the_policys_path_is_in_the_image(self):
        sys.path.insert(0, str(ROOT / "packages"))
        from images import FILES

        policy = (ROOT / "crates/ebb-deploy/src/fix/policy.rs").read_text()
        paths = set(re.findall(r"/opt/ebbmalloc/([\w/.]+)", policy))
        self.assertEqual(len(paths), 1)
        self.assertLessEqual(paths, set(FILES))

    def test_manifests_are_of_this_version(self):
        version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
        for name, pattern in (("kustomization.yaml", r'newTag: "?([\d.]+)'), ("Chart.yaml", r'(?:appVersion|version): "?([\d.]+)')):
            found = re.findall(pattern, (FOLDER / name).read_text())
            self.assertEqual(set(found), {version}, name)

    def test_a_release_has_them(self):
        with tarfile.open(one("ebb-*.tgz")) as chart:
            packed = {entry.name: chart.extractfile(entry).read() for entry in chart if entry.isfile()}
        tracked = subprocess.run(["git", "ls-files"], cwd=FOLDER, check=True, capture_output=True, text=True).stdout.split()
        wanted = [name for name in tracked if name not in ("dashboards.py", "rules-test.yaml")]
        self.assertEqual(packed, {f"ebb/{name}": (FOLDER / name).read_bytes() for name in wanted})


if __name__ == "__main__":
    unittest.main()
