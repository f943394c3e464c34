"""Names of hosts and users in a root without a libc and its modules."""

import json
from pathlib import Path
import subprocess
import sys

from made import VERDICTS, one
from roots import RootTest, started

PORT = "8080"
NETWORK = Path(__file__).with_name("network.py")
HOSTS = "127.0.0.1 localhost\n127.0.0.1 listed.example listed\n"
# As Kubernetes has it; modules that this root has not.
RESOLVER = "search shop.svc.cluster.local svc.cluster.local\nnameserver 127.0.0.1\noptions ndots:5\n"
MODULES = "passwd: sss systemd\nhosts: resolve [!UNAVAIL=return] mdns4_minimal dns myhostname\n"


class Names(RootTest):
    @classmethod
    def fill(cls):
        cls.root.unpack(one("*-ARCH-linux.tar.gz"))
        cls.root.copy("/bin/sleep")
        (cls.root.folder / "etc").mkdir()

    def etc(self, **files: str) -> None:
        for path in (self.root.folder / "etc").iterdir():
            path.unlink()
        for name, text in files.items():
            (self.root.folder / "etc" / name.replace("_", ".")).write_text(text)

    def burst(self, host: str) -> subprocess.CompletedProcess:
        command = ["unshare", "--net", sys.executable, NETWORK, PORT, "remote.example", "api.shop.svc.cluster.local", "--",
                   *self.root.command("/bin/ebb", "burst", f"http://{host}:{PORT}/", "-n", "2", "-c", "1", "--json")]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    def reached(self, host: str) -> None:
        done = self.burst(host)
        self.assertEqual(done.returncode, 0, done.stderr)
        said = json.loads(done.stdout)
        self.assertEqual((said["requests"], said["errors"]), (2, 0), done.stdout + done.stderr)

    def test_hosts_of_the_file_and_by_dns(self):
        for modules in ({}, {"nsswitch_conf": MODULES}):
            self.etc(hosts=HOSTS, resolv_conf=RESOLVER, **modules)
            for host in ("localhost", "listed", "listed.example", "remote.example", "api"):
                with self.subTest(host, **modules):
                    self.reached(host)

    def test_by_dns_alone(self):
        self.etc(resolv_conf="nameserver 127.0.0.1\n")
        self.reached("remote.example")

    def test_a_name_that_nobody_knows(self):
        self.etc(hosts=HOSTS, resolv_conf=RESOLVER)
        done = self.burst("no-such.example")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("Name or service not known", done.stderr)

    def test_a_process_of_a_user_whom_no_file_names(self):
        self.etc(nsswitch_conf=MODULES)
        service = started(self, self.root.command("/bin/sleep", "60", user=4711), "sleep")
        done = self.root.run("/bin/ebb", "why", str(service))
        self.assertIn(done.returncode, VERDICTS, done.stderr)
