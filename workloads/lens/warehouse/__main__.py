"""Serves results: `python -m warehouse --port PORT`.

All chunks are made and compressed before the first request, so that serving them costs little. A
data set is a choice of chunks by its number; the same number is the same result for ever.
"""

import argparse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import json
import random
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa

from . import tables

CHUNKS_A_DAY = 1


class Warehouse:
    def __init__(self, chunks: int, codec: str) -> None:
        options = pa.ipc.IpcWriteOptions(compression=codec)
        self.customers = encode(tables.customers(), options)
        self.chunks = [
            encode(tables.events(number, rows), options)
            for number, rows in enumerate(tables.chunk_rows(chunks), start=1)
        ]

    def answer(self, target: str) -> bytes | None:
        """The body for a path; None where there is none."""
        url = urlsplit(target)
        match url.path.strip("/").split("/"):
            case ["health"]:
                return b"{}"
            case ["customers"]:
                return self.customers
            case ["chunks", number] if number.isdecimal() and int(number) < len(self.chunks):
                return self.chunks[int(number)]
            case ["results", dataset] if dataset.isdecimal():
                days = int(parse_qs(url.query).get("days", ["1"])[0])
                chosen = random.Random(int(dataset)).choices(range(len(self.chunks)), k=days * CHUNKS_A_DAY)
                return json.dumps({"chunks": [f"/chunks/{number}" for number in chosen]}).encode()
        return None


def encode(table: pa.Table, options: pa.ipc.IpcWriteOptions) -> bytes:
    """A table as one compressed stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def handler_of(warehouse: Warehouse) -> type[BaseHTTPRequestHandler]:
    """The handler of requests to a warehouse."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            body = warehouse.answer(self.path)
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: the load counts what fails."""

    return Handler


def main() -> None:
    parser = argparse.ArgumentParser(prog="warehouse", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--chunks", type=int, default=64, help="different chunks of events")
    parser.add_argument("--codec", default="lz4", choices=["lz4", "zstd"])
    args = parser.parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", args.port), handler_of(Warehouse(args.chunks, args.codec)))
    server.daemon_threads = True
    server.serve_forever()


if __name__ == "__main__":
    main()
