"""A server in a known state: servers.py NAME STATE. Prints what is true with the server's pid, and waits."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time


def connected(path):
    for _ in range(200):
        try:
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(path)
            return connection
        except OSError:
            time.sleep(0.05)
    sys.exit("it does not answer")


def redis(state, folder):
    path = f"{folder}/socket"
    server = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", path, "--save", "", "--enable-debug-command", "yes", "--dir", folder],
                              stdout=subprocess.DEVNULL)
    connection = connected(path)
    file = connection.makefile("rwb")

    def ask(*words):
        file.write(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in map(str.encode, words)))
        file.flush()
        line = file.readline()
        return file.read(int(line[1:]) + 2) if line[:1] == b"$" and int(line[1:]) >= 0 else line
    ask("DEBUG", "POPULATE", "400000", "key", "150")
    if state == "thinned":
        for first in range(0, 400000, 1000):
            ask("DEL", *(f"key:{i}" for i in range(first, first + 1000) if i % 10))
    if state == "flushed":
        ask("FLUSHALL", "SYNC")
        time.sleep(12)
    time.sleep(0.5)  # its figures are of its last tick
    lines = dict(line.split(":", 1) for line in ask("INFO", "MEMORY").decode().splitlines() if ":" in line)
    live, resident = int(lines["allocator_allocated"]), int(lines["allocator_resident"])
    return server.pid, live, max(0, resident - live)


def memcached(_, folder):
    path = f"{folder}/socket"
    server = subprocess.Popen(["memcached", "-u", "root", "-m", "200", "-s", path], stdout=subprocess.DEVNULL)
    connection = connected(path)
    for i in range(60000):
        connection.sendall(b"set key%d 0 0 1500 noreply\r\n" % i + b"x" * 1500 + b"\r\n")
    connection.sendall(b"version\r\n")
    connection.recv(100)
    return server.pid, None, None


def nginx(_, folder):
    conf = (f"daemon off; pid {folder}/pid; worker_processes 2; error_log {folder}/error; events {{}}\n"
            f"http {{ access_log off; server {{ listen unix:{folder}/socket; }} }}\n")
    with open(f"{folder}/conf", "w") as file:
        file.write(conf)
    server = subprocess.Popen(["nginx", "-c", f"{folder}/conf"], stderr=subprocess.DEVNULL)
    connected(f"{folder}/socket")
    return server.pid, None, None


def postgres(_, folder):
    home = sorted(os.listdir("/usr/lib/postgresql"))[-1]
    binary = f"/usr/lib/postgresql/{home}/bin"
    shutil.chown(folder, "postgres")
    as_user = {"user": "postgres", "group": "postgres", "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([f"{binary}/initdb", "-D", f"{folder}/data", "--no-sync"], check=True, **as_user)
    server = subprocess.Popen([f"{binary}/postgres", "-D", f"{folder}/data", "-k", folder, "-h", "",
                               "-c", "shared_buffers=160MB", "-c", "fsync=off"], **as_user)
    connected(f"{folder}/.s.PGSQL.5432").close()
    fill = "create table t as select i, repeat('x', 900) from generate_series(1, 130000) i"
    subprocess.run(["psql", "-h", folder, "-c", fill, "postgres"], check=True, **as_user)
    return server.pid, None, None


def main():
    name, state = sys.argv[1:]
    program = {"redis": "redis-server", "postgres": "psql"}.get(name, name)
    if not shutil.which(program):
        sys.exit(f"no {program}")
    with tempfile.TemporaryDirectory(prefix="ebb-looks-server-") as folder:
        os.chmod(folder, 0o755)
        pid, live, held = globals()[name](state, folder)
        print(json.dumps({"live": live, "held": held, "other": 0, "pid": pid}), flush=True)
        sys.stdin.read()


main()
