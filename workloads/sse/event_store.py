"""The event store of a trial: redis-server, or where none can be had an embedded stand-in.

Run as a process of its own, `python -m event_store --port PORT --dir DIR`, so that either way the
store's memory is not the service's. The stand-in (fakeredis, an implementation of Redis in Python
with a TCP server) answers the same protocol, more slowly; it says on stderr that it stands in.
"""

import argparse
import os
import shutil
import sys


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--dir", required=True, help="where redis-server may write")
    parser.add_argument("--stand-in", action="store_true", help="even where redis-server is installed")
    args = parser.parse_args()
    server = None if args.stand_in else shutil.which("redis-server")
    if server is not None:
        options = ["--port", str(args.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        os.execv(server, [server, *options, "--dir", args.dir])
    print("redis-server is not installed: an embedded stand-in serves the events", file=sys.stderr)
    from fakeredis import TcpFakeServer

    TcpFakeServer.allow_reuse_address = True
    TcpFakeServer(("127.0.0.1", args.port), server_type="redis").serve_forever()


if __name__ == "__main__":
    main()
