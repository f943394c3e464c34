"""The command line of the load: store, session, pass.

The last line on stdout of session and pass is the summary for `ebb compare` (docs/workload.md).
"""

import argparse
from http.client import HTTPConnection, HTTPException
import json
from pathlib import Path
import sys
import time
from urllib.parse import urlsplit
import zlib

from answers.summary import Outcome, report

from .store import Size, checksums, make

MIB = 1 << 20


def ask(url: str, method: str, path: str, **headers: str) -> bytes:
    """One request; everything but a 2xx is an error."""
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "127.0.0.1", parts.port, timeout=300)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        body = response.read()
        if response.status // 100 != 2:
            raise HTTPException(f"{path}: {response.status} {body[:200]!r}")
        return body
    finally:
        connection.close()


def store(args: argparse.Namespace) -> int:
    """Makes the store where it is not there yet."""
    make(args.store, Size(args.rows, args.columns))
    return 0


def session(args: argparse.Namespace) -> int:
    """The view is opened for the first time, and its length asked."""
    size = Size(args.rows, args.columns)
    start = time.perf_counter()
    told = json.loads(ask(args.url, "POST", "/session"))["size"]
    outcome = Outcome(seconds=time.perf_counter() - start)
    if told == size.rows * size.row_bytes:
        outcome.latencies_ms.append(outcome.seconds * 1000)
    else:
        outcome.errors.append(f"the view has {told} bytes, {size.rows * size.row_bytes} expected")
    return report(outcome)


def read(args: argparse.Namespace) -> int:
    """One pass: bytes from a place on, each whole row of chunks checked."""
    size = Size(args.rows, args.columns)
    wanted = args.mib * MIB
    offset = args.number * size.row_bytes % max(1, size.rows * size.row_bytes - wanted)
    start = time.perf_counter()
    body = ask(args.url, "GET", "/bed", Range=f"bytes={offset}-{offset + wanted - 1}")
    outcome = Outcome(seconds=time.perf_counter() - start)
    outcome.errors = wrong(body, offset, wanted, size.row_bytes, checksums(args.store))
    if not outcome.errors:
        outcome.latencies_ms.append(outcome.seconds * 1000)
    return report(outcome)


def wrong(body: bytes, offset: int, wanted: int, row_bytes: int, expected: list[int]) -> list[str]:
    """What is not as it should be."""
    if len(body) != wanted:
        return [f"{len(body)} of {wanted} bytes"]
    found = []
    for row in range(-(-offset // row_bytes), (offset + wanted) // row_bytes):
        start = row * row_bytes - offset
        if zlib.crc32(body[start : start + row_bytes]) != expected[row]:
            found.append(f"row {row} of chunks is not what was written")
    return found


def parser() -> argparse.ArgumentParser:
    """The options."""
    top = argparse.ArgumentParser(prog="load", description=__doc__)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--store", type=Path, required=True, help="folder of the zarr array")
    shared.add_argument("--rows", type=int, default=16, help="of chunks, 1000 variants each")
    shared.add_argument("--columns", type=int, default=5, help="of chunks, 2500 samples each")
    verbs = top.add_subparsers(required=True)

    verb = verbs.add_parser("store", parents=[shared], help="make the store")
    verb.set_defaults(run=store)

    verb = verbs.add_parser("session", parents=[shared], help="open the view")
    verb.add_argument("--url", required=True, help="where the service listens")
    verb.set_defaults(run=session)

    verb = verbs.add_parser("pass", parents=[shared], help="read from the view")
    verb.add_argument("--url", required=True, help="where the service listens")
    verb.add_argument("--number", type=int, default=0, help="of the pass: where it begins")
    verb.add_argument("--mib", type=int, default=16)
    verb.set_defaults(run=read)
    return top


def main() -> int:
    """Runs one verb."""
    args = parser().parse_args()
    run: int = args.run(args)
    return run


if __name__ == "__main__":
    sys.exit(main())
