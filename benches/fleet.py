#!/usr/bin/env python3
"""How long `ebb fleet rank` takes on a large fleet: writes made-up series into a real Prometheus and asks.

    benches/fleet.py [--nodes 1000] [--each 30] [--days 1] [--step 300] [--ebb target/release/ebb] [--keep DIR]

Each container has the series of `ebb agent` that a ranking reads, and those of kube-state-metrics. With --keep, a folder that has data is
asked again and not written. Prints one line per run: time, CPU time and peak memory of ebb. Needs Debian's prometheus.
"""

import argparse
import contextlib
import math
import pathlib
import random
import resource
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

METRICS = ["usage_bytes", "returnable_bytes", "live_bytes", "look_timestamp_seconds", "oom_kills_total"]
DEPLOYMENTS = 300
# Courses, which containers share: a prime, so that no deployment has one of its own.
SHAPES = 301
HOUR, DAY = 3600, 86400


def varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number, data):
    """A field of protobuf with a length."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def labels(pairs):
    return b"".join(field(1, field(1, name.encode()) + field(2, value.encode())) for name, value in sorted(pairs.items()))


def samples(times, values):
    pairs = zip(times, values)
    return b"".join(field(2, b"\x09" + struct.pack("<d", value) + b"\x10" + varint(at * 1000)) for at, value in pairs)


def send(url, series):
    """One request of Prometheus' remote write; snappy with one literal."""
    body = b"".join(part for who, what in series for part in (b"\x0a", varint(len(who) + len(what)), who, what))
    packed = b"".join((varint(len(body)), b"\xfc", struct.pack("<I", len(body) - 1), body))
    headers = {"Content-Encoding": "snappy", "Content-Type": "application/x-protobuf"}
    try:
        urllib.request.urlopen(urllib.request.Request(url + "/api/v1/write", packed, headers), timeout=600).read()
    except urllib.error.HTTPError as error:
        sys.exit(f"fleet.py: Prometheus answered {error.code}: {error.read()[:300]}")


def fleet(nodes, count):
    """Label sets: by metric of the agent, then those whose value is 1."""
    draw = random.Random(1)
    state = {"job": "kube-state-metrics", "instance": "state:8080"}
    agent, ones = [], []
    for number in range(count):
        deployment = number % DEPLOYMENTS
        container, uid = f"{draw.getrandbits(256):064x}", f"{draw.getrandbits(128):032x}"
        namespace, replicas = f"team-{deployment % 20}", f"app-{deployment:03d}-5d9c7"
        pod = {"namespace": namespace, "pod": f"{replicas}-{number:05d}", "uid": uid}
        agent.append({
            "instance": f"node-{number % nodes:04d}:9464", "job": "ebb-agent", "node": f"node-{number % nodes:04d}",
            "cgroup": f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid}.slice/cri-containerd-{container}.scope",
            "container_id": container, "pod_uid": uid,
        })
        ones.append({"__name__": "ebb_group_info", **agent[-1], "allocator": "glibc", "in_charge": "yes"})
        ones.append({"__name__": "kube_pod_container_info", **state, **pod, "container": "app", "container_id": f"containerd://{container}"})
        ones.append({"__name__": "kube_pod_owner", **state, **pod, "owner_kind": "ReplicaSet", "owner_name": replicas})
    for deployment in range(DEPLOYMENTS):
        of = {**state, "namespace": f"team-{deployment % 20}"}
        name = f"app-{deployment:03d}"
        ones.append({"__name__": "kube_replicaset_owner", **of, "replicaset": f"{name}-5d9c7", "owner_kind": "Deployment", "owner_name": name})
        ones.append({"__name__": "kube_deployment_spec_replicas", **of, "deployment": name})
    by_metric = [[labels({**it, "__name__": f"ebb_group_{metric}"}) for it in agent] for metric in METRICS]
    return by_metric, [labels(it) for it in ones]


def courses(times, shapes):
    """The samples of each shape, by metric."""
    for live, held, phase, noise in shapes:
        wave = lambda at, size: 1 + size * math.sin((at + phase) * math.tau / DAY)
        look = lambda at: (at - int(phase) % 600) // 600 * 600
        returnable = [held * wave(look(at), -0.2) // 4096 * 4096 for at in times]
        lives = [live * wave(look(at), 0.3) // 4096 * 4096 for at in times]
        used = [(live * wave(at, 0.3) + noise.uniform(0, 8e6)) // 4096 * 4096 + more for at, more in zip(times, returnable)]
        yield [samples(times, of) for of in (used, returnable, lives, map(look, times), [0] * len(times))]


def write(url, options):
    count = options.nodes * options.each
    by_metric, ones = fleet(options.nodes, count)
    draw = random.Random(2)
    shapes = [(draw.uniform(5e7, 4e8), draw.uniform(0, 3e8), draw.uniform(0, DAY), random.Random(it)) for it in range(SHAPES)]
    end = int(time.time()) // options.step * options.step
    for at in range(end - int(options.days * DAY), end, HOUR):
        last = at + HOUR >= end
        times = range(at, end + options.step if last else at + HOUR, options.step)
        shaped = list(courses(times, shapes))
        series = [(of[number], shaped[number % SHAPES][metric]) for metric, of in enumerate(by_metric) for number in range(count)]
        # What never changes is read from the index; the last hour is for queries of one moment.
        some = times if last else times[:1]
        one = samples(some, [1] * len(some))
        send(url, series + [(of, one) for of in ones])
        print(f"{(end - at) // HOUR} hours to write", file=sys.stderr)


@contextlib.contextmanager
def prometheus(data):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = data / "prometheus.yml"
    config.write_text("global: {scrape_interval: 1m}\n")
    command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={data}", f"--web.listen-address=127.0.0.1:{port}"]
    server = subprocess.Popen([*command, "--web.enable-remote-write-receiver"], stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready").close()
                break
            time.sleep(0.2)
        else:
            sys.exit("fleet.py: Prometheus was not ready after a minute")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--each", type=int, default=30, help="containers of a node")
    parser.add_argument("--days", type=float, default=1)
    parser.add_argument("--step", type=int, default=300, help="seconds between scrapes")
    parser.add_argument("--ebb", default="target/release/ebb")
    parser.add_argument("--keep", type=pathlib.Path)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = options.keep or pathlib.Path(folder)
        data.mkdir(exist_ok=True)
        has_data = any(data.iterdir())
        with prometheus(data) as url:
            if not has_data:
                write(url, options)
            for _ in range(options.repeat):
                before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
                line = [options.ebb, "fleet", "rank", "--prometheus", url, "--for", f"{options.days * 24:.0f}h", "--json"]
                subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
                wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
                cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
                print(f"{wall:.1f} s, {cpu:.1f} s of CPU time, peak {after.ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
