#!/usr/bin/env python3
"""The admission policy of `ebb fix --policy` and the manifests, on a real kube-apiserver with etcd.

    ci/cluster.py

The API server is built from the Go proxy into target/cluster, which takes ten minutes of processor time once. There is no
kubelet and no controller: pods stay pending, and what the server made of them is asserted. Status 3 without Go, etcd or the proxy.
"""

import json
import os
from pathlib import Path
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
import unittest
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import machine

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
EBB = Path(os.environ.get("EBB_TEST_PROGRAM", TARGET / "release/ebb"))
KUBERNETES = "1.37.2"
KYVERNO = "1.19.1"
HELM = "3.22.0"
LIBRARY = "/opt/ebbmalloc/usr/local/lib/libebbmalloc.so"
MOUNT = {"name": "ebbmalloc", "mountPath": "/opt/ebbmalloc", "readOnly": True}
POLICY = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"


def missing(why: str) -> None:
    print(f"cluster.py: {why}", file=sys.stderr)
    sys.exit(3)


def module(name: str, folder: Path) -> dict:
    """A published Go module: where its files are."""
    if not shutil.which("go"):
        missing("go is not installed")
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "go.mod").exists():
        (folder / "go.mod").write_text("module cluster\n")
    found = subprocess.run(["go", "mod", "download", "-json", name], cwd=folder, capture_output=True, text=True)
    if found.returncode:
        missing(f"{name}: {found.stdout}{found.stderr}")
    return json.loads(found.stdout)


def build(program: Path) -> None:
    """The server's own module is built only as part of its repository: its siblings are replaced by their published versions."""
    folder = program.parent
    text = Path(module(f"k8s.io/kubernetes@v{KUBERNETES}", folder)["GoMod"]).read_text()
    siblings = re.findall(r"^\t(\S+) => \./staging/", text, re.MULTILINE)
    needed = [it for it in re.findall(r"^\t(\S+ v\S+)", text, re.MULTILINE) if not it.endswith(" v0.0.0")]
    go = re.search(r"^go \S+", text, re.MULTILINE)[0]
    requires = [f"require k8s.io/kubernetes v{KUBERNETES}", *(f"require {it}" for it in needed)]
    replaces = [f"replace {it} => {it} v0{KUBERNETES[1:]}" for it in siblings]
    (folder / "go.mod").write_text("\n".join(["module cluster", go, *requires, *replaces, ""]))
    command = ["go", "build", "-mod=mod", "-ldflags=-s -w", f"-o={program}", "k8s.io/kubernetes/cmd/kube-apiserver"]
    if subprocess.run(command, cwd=folder, env=os.environ | {"CGO_ENABLED": "0"}).returncode:
        missing("kube-apiserver was not built")


class Cluster:
    """etcd and the API server, in a folder of their own."""

    def __init__(self, program: Path, folder: Path):
        etcd, peers, self.port = machine.free_port(), machine.free_port(), machine.free_port()
        key = folder / "key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        (folder / "tokens").write_text('secret,admin,1,"system:masters"\n')
        self.logs = {name: (folder / name).open("w+") for name in ("etcd.log", "apiserver.log")}
        self.children = []
        self.start("etcd.log", ["etcd", "--data-dir", folder / "etcd", "--listen-client-urls", f"http://127.0.0.1:{etcd}",
                                "--advertise-client-urls", f"http://127.0.0.1:{etcd}", "--listen-peer-urls", f"http://127.0.0.1:{peers}"])
        self.start("apiserver.log", [
            program, f"--etcd-servers=http://127.0.0.1:{etcd}", f"--secure-port={self.port}", "--bind-address=127.0.0.1",
            f"--cert-dir={folder}/certificates", f"--token-auth-file={folder}/tokens", "--authorization-mode=AlwaysAllow",
            "--service-account-issuer=https://cluster", f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}",
            "--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none"])

    def start(self, log: str, command: list) -> None:
        command = [str(word) for word in command]
        self.children.append(subprocess.Popen(command, stdout=self.logs[log], stderr=subprocess.STDOUT))

    def ask(self, path: str, body: dict | str | None = None, method: str | None = None) -> dict:
        """The answer, also if it is a refusal."""
        kind = "application/yaml" if isinstance(body, str) else "application/json"
        data = None if body is None else (body if isinstance(body, str) else json.dumps(body)).encode()
        request = Request(f"https://127.0.0.1:{self.port}{path}", data, {"Authorization": "Bearer secret", "Content-Type": kind}, method=method)
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        try:
            with urlopen(request, timeout=30, context=context) as answer:
                return json.load(answer)
        except HTTPError as refusal:
            return json.load(refusal)

    def wait_until(self, what: str, holds) -> None:
        end = time.monotonic() + 120
        while time.monotonic() < end:
            try:
                if holds():
                    return
            except (URLError, ConnectionError, ValueError):
                pass
            time.sleep(0.2)
        for log in self.logs.values():
            log.seek(0)
            print(log.read()[-3000:], file=sys.stderr)
        raise AssertionError(f"not within two minutes: {what}")

    def stop(self) -> None:
        for child in reversed(self.children):
            child.kill()
            child.wait()


def pod(labels: dict | None = None, name: str = "", containers: list | None = None, **spec) -> dict:
    """As a ReplicaSet makes it, if it has no name."""
    named = {"name": name} if name else {"generateName": "pay-1a-"}
    containers = containers or [{"name": "app", "image": "app"}]
    labels = {"ebbmalloc": "preload"} | (labels or {})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": named | {"labels": labels}, "spec": {"containers": containers} | spec}


def container(name: str = "app", **more) -> dict:
    return {"name": name, "image": "app"} | more


class Policy(unittest.TestCase):
    cluster: Cluster

    @classmethod
    def setUpClass(cls):
        program = TARGET / "cluster" / f"kube-apiserver-{KUBERNETES}"
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.cluster = Cluster(program, Path(folder.name))
        cls.addClassCleanup(cls.cluster.stop)
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        shop = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
        cls.cluster.wait_until("the server is ready", lambda: cls.cluster.ask("/api/v1/namespaces", shop).get("kind") == "Namespace")
        cls.create("/api/v1/namespaces/shop/serviceaccounts", account)

    @classmethod
    def create(cls, path: str, body: dict | str) -> dict:
        made = cls.cluster.ask(path, body)
        assert made.get("kind") != "Status", made
        return made

    @classmethod
    def apply(cls, *options: str) -> None:
        """The policy in force: a pod shows when the server has read it."""
        text = subprocess.run([EBB, "fix", "--policy", *options], check=True, capture_output=True, text=True).stdout
        policy, binding = text.split("---\n")
        cls.create(f"{POLICY}?fieldValidation=Strict", policy)
        cls.create(f"{POLICY.replace('policies', 'policybindings')}?fieldValidation=Strict", binding)

    @classmethod
    def remove(cls) -> None:
        cls.cluster.ask(f"{POLICY.replace('policies', 'policybindings')}/ebbmalloc", method="DELETE")
        cls.cluster.ask(f"{POLICY}/ebbmalloc", method="DELETE")
        cls.cluster.wait_until("the policy is gone", lambda: not is_changed(cls.admit(pod(name="payments-0"))))

    @classmethod
    def admit(cls, wanted: dict, namespace: str = "shop") -> dict:
        """The pod as it would be stored."""
        return cls.create(f"/api/v1/namespaces/{namespace}/pods?dryRun=All&fieldValidation=Strict", wanted)


def is_changed(made: dict) -> bool:
    return made["metadata"]["labels"].get("ebbmalloc-preloaded") == "true"


def preloads(made: dict, kind: str = "containers") -> dict[str, str | None]:
    """Value of LD_PRELOAD by container."""
    return {it["name"]: next((e.get("value", "") for e in it.get("env", []) if e["name"] == "LD_PRELOAD"), None) for it in made["spec"][kind]}


class Everywhere(Policy):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.apply()
        cls.cluster.wait_until("the policy is in force", lambda: is_changed(cls.admit(pod())))

    def test_a_pod_gets_the_image_the_mount_and_the_variable(self):
        made = self.admit(pod())
        self.assertEqual(preloads(made), {"app": LIBRARY})
        self.assertIn(MOUNT, made["spec"]["containers"][0]["volumeMounts"])
        [volume] = [it for it in made["spec"]["volumes"] if it["name"] == "ebbmalloc"]
        self.assertRegex(volume["image"]["reference"], r"^ghcr.io/ebbmalloc/ebb:\d")
        self.assertEqual(volume["image"]["pullPolicy"], "IfNotPresent")

    def test_a_pod_without_volumes_and_token(self):
        made = self.admit(pod(automountServiceAccountToken=False))
        self.assertEqual([it["name"] for it in made["spec"]["volumes"]], ["ebbmalloc"])
        self.assertEqual(made["spec"]["containers"][0]["volumeMounts"], [MOUNT])

    def test_a_variable_with_a_value_gets_ours_appended(self):
        env = [{"name": "A", "value": "1"}, {"name": "LD_PRELOAD", "value": "/x/libfaketime.so.1"}]
        made = self.admit(pod(containers=[container(env=env), container("empty", env=[{"name": "LD_PRELOAD"}]), container("other", env=env[:1])]))
        self.assertEqual(preloads(made), {"app": f"/x/libfaketime.so.1:{LIBRARY}", "empty": LIBRARY, "other": LIBRARY})
        self.assertEqual(made["spec"]["containers"][0]["env"][0], env[0])
        self.assertEqual(len(made["spec"]["containers"][0]["env"]), 2)

    def test_the_last_of_two_entries_counts(self):
        env = [{"name": "LD_PRELOAD", "value": it} for it in ("a.so", "b.so")]
        made = self.admit(pod(containers=[container(env=env)]))
        self.assertEqual([it["value"] for it in made["spec"]["containers"][0]["env"]], ["a.so", f"b.so:{LIBRARY}"])

    def test_containers_that_are_left_alone(self):
        of_map = [{"name": "LD_PRELOAD", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]
        ours = [{"name": "LD_PRELOAD", "value": "/usr/local/lib/libebbmalloc.so"}]
        left = [container("map", env=of_map), container("ours", env=ours), container("proxy"), container("agent")]
        made = self.admit(pod(containers=[container(), *left], labels={"ebbmalloc-skip": "proxy.agent"}))
        self.assertEqual(preloads(made), {"app": LIBRARY, "map": "", "ours": "/usr/local/lib/libebbmalloc.so", "proxy": None, "agent": None})
        for it in made["spec"]["containers"][1:]:
            self.assertNotIn(MOUNT, it.get("volumeMounts", []), it["name"])

    def test_init_containers_only_where_they_stay(self):
        made = self.admit(pod(initContainers=[container("migrate"), container("proxy", restartPolicy="Always")]))
        self.assertEqual(preloads(made, "initContainers"), {"migrate": None, "proxy": LIBRARY})

    def test_pods_that_do_not_ask(self):
        volume = {"name": "ebbmalloc", "emptyDir": {}}
        for wanted in (pod({"ebbmalloc": "off"}), pod(os={"name": "windows"}), pod(volumes=[volume]), pod({"ebbmalloc-skip": "app"})):
            made = self.admit(wanted)
            self.assertFalse(is_changed(made), wanted)
            self.assertEqual(preloads(made), {"app": None})

    def test_a_second_time_changes_nothing(self):
        made = self.admit(pod(containers=[container(env=[{"name": "LD_PRELOAD", "value": "a.so"}])]))
        again = self.admit({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "again", "labels": made["metadata"]["labels"]}, "spec": made["spec"]})
        self.assertEqual(made["spec"], again["spec"])

    def test_a_restricted_namespace_admits_it(self):
        self.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {
            "name": "strict", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}})
        self.create("/api/v1/namespaces/strict/serviceaccounts", {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}})
        secure = {"allowPrivilegeEscalation": False, "runAsNonRoot": True, "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"}}
        self.assertTrue(is_changed(self.admit(pod(containers=[container(securityContext=secure)]), "strict")))

    def test_the_agent_is_admitted(self):
        namespace, agent = (ROOT / "packages/kubernetes/agent.yaml").read_text().split("---\n")
        self.create("/api/v1/namespaces", namespace)
        self.create("/api/v1/namespaces/ebb/serviceaccounts", {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}})
        made = self.create("/apis/apps/v1/namespaces/ebb/daemonsets?fieldValidation=Strict", agent)
        template = made["spec"]["template"]
        self.admit({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "ebb-agent-"}, "spec": template["spec"]}, "ebb")


class Share(Policy):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.apply("--percent", "10")
        cls.cluster.wait_until("the policy is in force", lambda: any(is_changed(cls.admit(pod())) for _ in range(50)))

    def test_a_tenth_of_a_deployments_pods(self):
        changed = sum(is_changed(self.admit(pod())) for _ in range(600))
        # Four standard deviations.
        self.assertTrue(31 <= changed <= 89, changed)

    def test_a_name_decides_for_ever(self):
        names = [f"kafka-{number}" for number in range(50)]
        first, second = ([is_changed(self.admit(pod(name=name))) for name in names] for _ in range(2))
        self.assertEqual(first, second)
        self.assertTrue(2 <= sum(first) <= 10, first)

    def test_none_where_nothing_tells_pods_apart(self):
        self.assertFalse(any(is_changed(self.admit(pod(automountServiceAccountToken=False))) for _ in range(50)))


class Chart(Policy):
    def test_what_it_makes_is_admitted(self):
        helm = TARGET / "cluster/helm"
        if not helm.exists():
            environment = os.environ | {"GOBIN": str(helm.parent.resolve()), "CGO_ENABLED": "0"}
            subprocess.run(["go", "install", f"helm.sh/helm/v3/cmd/helm@v{HELM}"], check=True, env=environment)
        command = [helm, "template", "ebb", ROOT / "packages/kubernetes", "--namespace", "shop", "--set", "operator=true,dashboards=true,budget=1%"]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        made = {re.search(r"^kind: (.*)", it, re.MULTILINE)[1]: it for it in text.split("---\n")[1:]}
        self.assertEqual(set(made), {"ConfigMap", "DaemonSet", "PodMonitor", "PrometheusRule"})
        agent = self.create("/apis/apps/v1/namespaces/shop/daemonsets?fieldValidation=Strict", made["DaemonSet"])
        self.assertEqual(agent["spec"]["template"]["spec"]["containers"][0]["args"][-1], "1%")
        files = self.create("/api/v1/namespaces/shop/configmaps?fieldValidation=Strict", made["ConfigMap"])["data"]
        self.assertEqual({json.loads(it)["title"] for it in files.values()}, {"ebb: node", "ebb: workload", "ebb: fleet"})


class Kyverno(Policy):
    def test_its_schema_has_each_field(self):
        crd = Path(module(f"github.com/kyverno/kyverno@v{KYVERNO}", TARGET / "cluster")["Dir"])
        crd /= "config/crds/policies.kyverno.io/policies.kyverno.io_mutatingpolicies.yaml"
        self.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd.read_text())
        path = "/apis/policies.kyverno.io/v1/mutatingpolicies"
        self.cluster.wait_until("Kyverno's kind is known", lambda: "items" in self.cluster.ask(path))
        text = subprocess.run([EBB, "fix", "--policy", "kyverno", "--percent", "10"], check=True, capture_output=True, text=True).stdout
        self.create(f"{path}?fieldValidation=Strict", text)
        refused = self.cluster.ask(f"{path}?fieldValidation=Strict", text.replace("podControllers:", "podControl:"))
        self.assertIn("podControl", refused["message"])


class Removed(Policy):
    def test_the_way_back(self):
        self.apply()
        self.cluster.wait_until("the policy is in force", lambda: is_changed(self.admit(pod())))
        self.remove()
        self.assertFalse(is_changed(self.admit(pod())))


def main() -> None:
    for program in ("etcd", "openssl"):
        if not shutil.which(program):
            missing(f"{program} is not installed")
    program = TARGET / "cluster" / f"kube-apiserver-{KUBERNETES}"
    if not program.exists():
        build(program)
    unittest.main()


if __name__ == "__main__":
    main()
