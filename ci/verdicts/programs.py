"""Real programs. Each is brought into a state in which it is known where the memory is."""

import base64
from collections.abc import Callable
from dataclasses import dataclass
import json
from pathlib import Path
import socket
import subprocess
from urllib.request import urlopen

PYTHON = Path(__file__).parent / ".venv/bin/python"
PATIENCE_S = 90
READY = "ready"


@dataclass
class Program:
    name: str
    # What is true: a kind of verdict, and the cause that it must name, or "".
    verdict: str
    main: str
    # Words are formatted with {port} and {dir}. The last word "-c" or the like is followed by `script`.
    command: str
    script: str = ""
    # Once it is ready: what it prints, or "" for a port that answers.
    ready: str = READY
    # Brings a server into its state: gets the port and the folder.
    load: Callable[[int, Path], None] | None = None
    # Of the descendants whose command has this in it, the one that holds most is looked at; "@FILE" has a pid.
    child: str = ""
    settle_s: float = 2.0
    # What `ebb why` says where that is something else, and why it does.
    says: str = ""
    because: str = ""


# --- Loads


def talk(port: int, chunks, last: bytes) -> None:
    """Sends `chunks`, reads until the answer ends with `last`."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        for chunk in chunks:
            connection.sendall(chunk)
        tail = b""
        while not tail.endswith(last):
            data = connection.recv(1 << 16)
            if not data:
                raise RuntimeError(f"the server closed the connection after {tail!r}")
            tail = (tail + data)[-100:]


def redis_fill(port: int, _: Path) -> None:
    keys = (f"SET key:{at} {'v' * (300 + at % 400)}\r\n".encode() for at in range(200_000))
    talk(port, (*[b"CLIENT REPLY OFF\r\n"], *keys, b"CLIENT REPLY ON\r\n", b"PING\r\n"), b"+PONG\r\n")


def redis_flush(port: int, folder: Path) -> None:
    redis_fill(port, folder)
    talk(port, [b"FLUSHALL\r\n"], b"+OK\r\n")


def memcached_fill(port: int, _: Path) -> None:
    items = (b"set k%d 0 0 1000 noreply\r\n" % at + b"x" * 1000 + b"\r\n" for at in range(60_000))
    talk(port, (*items, b"version\r\n"), b"\r\n")


def run(command: str, **options) -> None:
    subprocess.run(command, shell=True, check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE_S, **options)


def postgres_fill(port: int, folder: Path) -> None:
    run(f"psql -q -h 127.0.0.1 -p {port} -U postgres -c 'create table t as select g, md5(g::text) a, md5(g::text) b from "
        f"generate_series(1, 900000) g' -c 'select count(*) from t' -c checkpoint")


def mariadb_fill(port: int, folder: Path) -> None:
    run(f"mariadb -S {folder}/s -u root -e \"create database d; use d; create table d.t (a int primary key, b char(200)) engine=innodb "
        f"select seq a, repeat('x', 190) b from seq_1_to_400000; select count(*), max(b) from d.t\"")


def http(path: str, times: int) -> Callable[[int, Path], None]:
    def load(port: int, _: Path) -> None:
        for _ in range(times):
            with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
                connection.sendall(f"GET {path} HTTP/1.0\r\nHost: x\r\n\r\n".encode())
                while connection.recv(1 << 16):
                    pass
    return load


def etcd_fill(port: int, _: Path) -> None:
    for at in range(40):
        key, value = (base64.b64encode(text).decode() for text in (b"k%d" % at, b"x" * 700_000))
        urlopen(f"http://127.0.0.1:{port}/v3/kv/put", json.dumps({"key": key, "value": value}).encode()).close()


# --- The programs

PY = "import time, gc\n{}\ngc.collect()\nprint('ready', flush=True)\ntime.sleep(1000)\n"


def python(name: str, verdict: str, main: str, text: str, **more) -> Program:
    return Program(f"python3, {name}", verdict, main, f"{PYTHON} -c", PY.format(text), **more)


PROGRAMS = [
    # Servers
    Program("redis, 200,000 keys", "in-use", "live", "redis-server --port {port} --save '' --dir {dir}", ready="", load=redis_fill),
    Program("redis after FLUSHALL", "in-use", "", "redis-server --port {port} --save '' --dir {dir}", ready="", load=redis_flush, settle_s=15),
    Program("memcached, 60 MB of items", "in-use", "live", "memcached -u root -m 256 -p {port}", ready="", load=memcached_fill),
    Program("PostgreSQL, its shared buffers filled", "not-heap", "shared-memory",
            "setpriv --reuid nobody --regid nogroup --clear-groups sh -c", "/usr/lib/postgresql/15/bin/initdb -A trust -U postgres -D {dir}/d >/dev/null && "
            "exec /usr/lib/postgresql/15/bin/postgres -D {dir}/d -p {port} -k {dir} -c shared_buffers=256MB", ready="", load=postgres_fill),
    Program("MariaDB, its buffer pool filled", "not-heap", "anonymous",
            "sh -c", "mariadb-install-db --user=root --datadir={dir}/d --auth-root-authentication-method=normal >/dev/null 2>&1 && "
            "exec mariadbd --user=root --datadir={dir}/d --port={port} --bind-address=127.0.0.1 --socket={dir}/s --innodb-buffer-pool-size=256M",
            ready="", load=mariadb_fill),
    Program("nginx, idle", "in-use", "", "sh -c", "printf 'daemon off; error_log stderr; pid {dir}/p; events {{}} http {{ access_log off; server {{ listen {port}; }} }}' "
            ">{dir}/c && exec nginx -c {dir}/c", ready="", load=http("/", 20)),
    Program("Apache, 5 workers", "in-use", "", "sh -c", "printf 'ServerRoot /usr/lib/apache2\\nPidFile {dir}/p\\nListen {port}\\nErrorLog {dir}/e\\n"
            "LoadModule mpm_prefork_module modules/mod_mpm_prefork.so\\nLoadModule authz_core_module modules/mod_authz_core.so\\nUser nobody\\nGroup nogroup\\n' "
            ">{dir}/c && exec apache2 -D FOREGROUND -f {dir}/c", ready="", load=http("/", 20)),
    Program("haproxy, idle", "in-use", "", "sh -c", "printf 'global\\n maxconn 100\\ndefaults\\n timeout client 5s\\n timeout connect 5s\\n timeout server 5s\\n"
            "frontend f\\n mode http\\n bind 127.0.0.1:{port}\\n' >{dir}/c && exec haproxy -f {dir}/c", ready=""),
    Program("unbound, idle", "in-use", "", "sh -c", "printf 'server:\\n do-daemonize: no\\n username: \"\"\\n chroot: \"\"\\n pidfile: \"\"\\n interface: 127.0.0.1@{port}\\n"
            " directory: \"{dir}\"\\n use-syslog: no\\n' >{dir}/c && exec unbound -d -c {dir}/c", ready=""),
    Program("mosquitto, idle", "in-use", "", "mosquitto -p {port}", ready=""),
    Program("BIND, idle", "in-use", "", "sh -c", "printf 'options {{ directory \"{dir}\"; listen-on port {port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }}; pid-file none; "
            "session-keyfile none; recursion no; }}; controls {{ }};' >{dir}/c && exec named -g -c {dir}/c", ready=""),
    Program("etcd, 28 MB of values", "not-heap", "anonymous", "etcd --data-dir {dir}/d --listen-client-urls http://127.0.0.1:{port} --advertise-client-urls "
            "http://127.0.0.1:{port} --listen-peer-urls http://127.0.0.1:0", ready="", load=etcd_fill),
    # Interpreters and their heaps
    Program("node, 150 MB of objects", "not-heap", "anonymous", "node -e",
            "const a = []; for (let i = 0; i < 1500000; i++) a.push({{ i, s: 'n' + i }}); console.log('ready'); setInterval(() => a.length, 1e6)"),
    Program("node, 100 MB of buffers", "in-use", "live", "node -e",
            "const a = []; for (let i = 0; i < 2500; i++) a.push(Buffer.alloc(40000, 1)); console.log('ready'); setInterval(() => a.length, 1e6)"),
    Program("Java, 200 MB of objects", "not-heap", "anonymous", "sh -c",
            "printf 'public class H {{ static Object[] a = new Object[4000000]; public static void main(String[] x) throws Exception {{ for (int i = 0; i < a.length; i++) "
            "a[i] = new int[8]; System.out.println(\"ready\"); Thread.sleep(1000000); }} }}' >{dir}/H.java && exec java -Xmx600m {dir}/H.java"),
    Program("Go, 150 MB of slices", "not-heap", "anonymous", "sh -c",
            "printf 'package main\\nimport (\"fmt\"; \"time\")\\nvar a [][]byte\\nfunc main() {{ for i := 0; i < 150000; i++ {{ b := make([]byte, 1000); b[0] = 1; a = append(a, b) }}; "
            "fmt.Println(\"ready\"); time.Sleep(1000 * time.Second) }}\\n' >{dir}/g.go && GOCACHE={dir}/c go build -o {dir}/g {dir}/g.go && exec {dir}/g"),
    Program("Erlang, 100 MB of binaries", "not-heap", "anonymous", "erl -noshell -eval",
            "L = [binary:copy(<<\"x\">>, 1000 + I rem 500) || I <- lists:seq(1, 80000)], io:format(\"ready~n\"), timer:sleep(1000000), length(L)."),
    Program("SBCL, 100 MB of vectors", "not-heap", "anonymous", "sbcl --noinform --eval",
            "(progn (defvar *a* (loop repeat 100 collect (make-array 1000000 :element-type '(unsigned-byte 8) :initial-element 1))) (format t \"ready~%\") (finish-output) (sleep 1000))"),
    Program("OCaml, 100 MB of strings", "in-use", "live", "sh -c", "echo 'let a = Array.init 100000 (fun i -> String.make 1000 (Char.chr (i land 127)))\nlet () = print_endline \"ready\"; ignore (read_line ()); print_string a.(0)' "
            ">{dir}/o.ml && exec ocaml {dir}/o.ml"),
    Program("Guile, 100 MB of vectors", "not-heap", "anonymous", "guile --no-auto-compile -c",
            "(define a (let loop ((i 0) (l '())) (if (= i 100000) l (loop (+ i 1) (cons (make-vector 120 i) l))))) (display \"ready\\n\") (force-output) (sleep 1000)"),
    Program("Ruby, 100 MB of strings", "in-use", "live", "ruby -e", "$a = (0..100_000).map {{ |i| 'x' * 1000 + i.to_s }}; puts 'ready'; $stdout.flush; sleep 1000"),
    Program("Ruby, one string in 50 kept", "retention", "trimmable", "ruby -e",
            "$b = Thread.new {{ a = (0..100_000).map {{ |i| 'x' * (500 + i % 1500) }}; (0..2000).map {{ |i| a[50 * i] }} }}.value; 3.times {{ GC.start }}; puts 'ready'; $stdout.flush; sleep 1000"),
    Program("Perl, 100 MB in a hash", "in-use", "live", "perl -e", "$|=1; $h{{$_}} = 'x' x 900 for 1..100000; print \"ready\\n\"; sleep 1000"),
    Program("Perl, one value in 50 kept", "retention", "trimmable", "perl -e",
            "$|=1; $h{{$_}} = 'x' x (500 + $_ % 1500) for 1..100000; for (1..100000) {{ delete $h{{$_}} if $_ % 50 }}; print \"ready\\n\"; sleep 1000"),
    Program("Lua, 100 MB of strings", "in-use", "live", "lua5.4 -e", "a = {{}} for i = 1, 100000 do a[i] = string.rep('x', 900) .. i end print('ready') io.stdout:flush() io.read()"),
    Program("Lua, one string in 50 kept", "retention", "trimmable", "lua5.4 -e",
            "a = {{}} for i = 1, 100000 do a[i] = string.rep('x', 500 + i % 1500) .. i end for i = 1, 100000 do if i % 50 ~= 0 then a[i] = nil end end "
            "collectgarbage() collectgarbage() print('ready') io.stdout:flush() io.read()"),
    Program("PHP, 100 MB of strings", "not-heap", "anonymous", "php -r", "for ($i = 0; $i < 100000; $i++) $a[] = str_repeat('x', 900) . $i; echo \"ready\\n\"; sleep(1000);"),
    Program("R, 160 MB of numbers", "in-use", "live", "Rscript -e", "a <- lapply(1:200, function(i) rnorm(1e5)); cat('ready\\n'); Sys.sleep(1000)"),
    Program("Tcl, 100 MB in an array", "in-use", "live", "sh -c", "printf 'for {{set i 0}} {{$i < 100000}} {{incr i}} {{ set a($i) [string repeat x 900] }}\\nputs ready\\nflush stdout\\nafter 1000000\\n' "
            ">{dir}/t && exec tclsh {dir}/t"),
    Program("SWI-Prolog, idle", "in-use", "", "swipl -g", "writeln(ready), flush_output, sleep(1000)"),
    Program("Emacs, a buffer of 60 MB", "in-use", "", "emacs --batch --eval",
            "(let ((b (generate-new-buffer \"x\"))) (with-current-buffer b (insert (make-string 60000000 ?x))) (write-region \"ready\\n\" nil \"{dir}/output\" t (quote silent)) (sleep-for 1000))"),
    Program("bash, 60 MB in an array", "in-use", "live", "bash -c", "for ((i = 0; i < 60000; i++)); do printf -v a[i] '%01000d' $i; done; echo ready; read"),
    Program("bash, one element in 50 kept", "retention", "", "bash -c",
            "for ((i = 0; i < 60000; i++)); do printf -v a[i] '%01000d' $i; done; for ((i = 0; i < 60000; i++)); do ((i % 50)) && unset 'a[i]'; done; echo ready; read"),
    Program("SQLite, a table in memory", "in-use", "live", "sh -c", "(echo \"create table t as with recursive n(i) as (select 1 union all select i + 1 from n where i < 100000) "
            "select i, hex(randomblob(400)) b from n; select 'ready';\"; sleep 1000) | sqlite3 :memory:", child="sqlite3 "),
    Program("SQLite, the table dropped", "retention", "trimmable", "sh -c", "(echo \"create table k(x); create table t as with recursive n(i) as (select 1 union all select i + 1 from n where i < 100000) "
            "select i, hex(randomblob(400)) b from n; insert into k values (1); drop table t; vacuum; select 'ready';\"; sleep 1000) | sqlite3 :memory:", child="sqlite3 "),
    Program("awk, 60 MB in an array", "in-use", "live", "awk", "BEGIN {{ for (i = 0; i < 60000; i++) a[i] = sprintf(\"%01000d\", i); print \"ready\"; fflush(); getline }}"),
    # Programs of the desktop and of the machine
    Program("sort, before the end of its input", "in-use", "", "sh -c", "(seq 1 5500000; sleep 3; echo ready >&2; sleep 1000) | sort", child="sort"),
    Program("git, a repository's objects", "in-use", "", "sh -c", "git -C {dir} init -q && (echo ready >&2; sleep 1000) | git -C {dir} cat-file --batch", child="cat-file"),
    Program("gnuplot, idle", "in-use", "", "gnuplot -e", "print 'ready'; pause 1000"),
    Program("Firefox, an empty page", "in-use", "", "sh -c", "(sleep 8; echo ready) & exec firefox-esr --headless --no-remote --profile {dir} about:blank", settle_s=4,
            says="not-enough-evidence", because="no reader knows Firefox's fork of jemalloc"),
    Program("vim, a file of 60 MB", "in-use", "live", "sh -c", "seq 1 8000000 | head -c 60000000 >{dir}/f; (sleep 1000) | vim -u NONE -es -c 'edit {dir}/f' -c '%s/1/11/g' -c '!echo ready'", child="vim "),
    Program("tmux, 50,000 lines of history", "in-use", "live", "sh -c",
            "printf 'set -g history-limit 1000000\\n' >{dir}/c; tmux -S {dir}/s -f {dir}/c new-session -d 'seq 1 500000; sleep 1000'; sleep 3; tmux -S {dir}/s display -p '#{{pid}}' >{dir}/pid; "
            "echo ready; exec sleep 1000", child="@{dir}/pid"),
    Program("QEMU, a guest without a system", "not-heap", "mapped-files", "qemu-system-x86_64 -M pc,accel=tcg -m 256 -display none -serial none -monitor none -qmp tcp:127.0.0.1:{port},server=on,wait=off -S",
            ready=""),
    Program("LibreOffice, headless", "not-heap", "mapped-files", "soffice --headless --norestore -env:UserInstallation=file://{dir}/p --accept=socket,host=127.0.0.1,port={port};urp;", ready="", child="soffice.bin "),
    Program("Chromium, a page of 100 MB of objects", "not-heap", "anonymous", "sh -c",
            "printf '<script>a=[];for(i=0;i<1000000;i++)a.push({{i,s:\"n\"+i}});document.title=\"done\"</script>' >{dir}/p.html; (sleep 8; echo ready) & "
            "exec chromium --headless --no-sandbox --disable-gpu --user-data-dir={dir}/u --remote-debugging-port={port} file://{dir}/p.html", child="--type=renderer", says="not-enough-evidence",
            because="V8 and Chromium's own allocator share the renderer's memory, and no reader knows the allocator"),
    Program("gunicorn-like forks of Python, live", "in-use", "live", f"{PYTHON} -c",
            "import os, time\na = [bytes(1000 + i % 7) for i in range(100000)]\nfor _ in range(3):\n    if not os.fork(): time.sleep(1000)\nprint('ready', flush=True)\ntime.sleep(1000)"),
    # Python's native packages
    python("a dict of 1,000,000 numbers", "in-use", "objects", "a = {{i: i * 1.5 for i in range(1000000)}}"),
    python("numpy, 160 MB", "in-use", "live", "import numpy\na = [numpy.ones(100000) for _ in range(200)]"),
    python("numpy, freed", "in-use", "", "import numpy\na = [numpy.ones(100000) for _ in range(200)]\ndel a"),
    python("numpy, small arrays, one in 50 kept", "retention", "trimmable", "import numpy\na = [numpy.ones(300) for _ in range(80000)]\nb = a[::50]\ndel a"),
    python("pandas, a frame of numbers", "in-use", "live", "import pandas, numpy\na = pandas.DataFrame(numpy.ones((1000000, 20)))"),
    python("pyarrow, its pool", "in-use", "", "import pyarrow\na = [pyarrow.array(range(20000)) for _ in range(800)]"),
    python("pyarrow, its pool freed", "retention", "", "import pyarrow\na = [pyarrow.array(range(20000)) for _ in range(2500)]\nb = a[::50]\ndel a"),
    python("polars, frames", "in-use", "", "import polars\na = [polars.DataFrame({{'a': list(range(20000)), 'b': [str(i) for i in range(20000)]}}) for _ in range(60)]"),
    python("duckdb, a table in memory", "in-use", "", "import duckdb\nc = duckdb.connect()\nc.execute('create table t as select range i, md5(range::varchar) s from range(2000000)')",
           says="not-enough-evidence", because="the library has a jemalloc under other names, which is not read"),
    python("lxml, a tree", "in-use", "live", "from lxml import etree\nr = etree.Element('r')\nfor i in range(400000): etree.SubElement(r, 'e', a=str(i)).text = 'text %d' % i"),
    python("lxml, the tree freed", "retention", "trimmable", "from lxml import etree\nk = []\nr = etree.Element('r')\nfor i in range(400000):\n    etree.SubElement(r, 'e', a=str(i)).text = 'text %d' % i\n"
           "    if i % 20000 == 0: k.append(etree.Element('k', a='kept'))\ndel r"),
    python("scikit-learn, a forest", "in-use", "live", "import numpy\nfrom sklearn.ensemble import RandomForestRegressor\nx = numpy.random.default_rng(1).random((20000, 10))\n"
           "f = RandomForestRegressor(60, n_jobs=1).fit(x, x[:, 0])"),
    python("Pillow, 100 images", "in-use", "live", "from PIL import Image\na = [Image.new('RGB', (600, 500), (1, 2, 3)) for _ in range(100)]"),
    python("OpenCV, 100 images", "in-use", "live", "import cv2, numpy\na = [cv2.blur(numpy.ones((600, 500, 3), 'uint8'), (5, 5)) for _ in range(120)]"),
    python("matplotlib, 20 figures", "in-use", "", "import matplotlib; matplotlib.use('agg')\nimport matplotlib.pyplot as p\nf = []\nfor i in range(20):\n    g, x = p.subplots(); x.plot(range(1000)); g.canvas.draw(); f.append(g)"),
    python("jax, arrays", "in-use", "live", "import jax.numpy as j\na = [j.full((300000,), float(i)).block_until_ready() for i in range(300)]"),
    python("sqlalchemy, 100,000 rows", "in-use", "objects", "import sqlalchemy as s\ne = s.create_engine('sqlite://')\nwith e.connect() as c:\n"
           "    r = c.execute(s.text('with recursive n(i) as (select 1 union all select i+1 from n where i<200000) select i, i*2.5, i*3 from n')).all()"),
]
