"""The server: GET /bed with a Range gives bytes of the view, POST /session opens it first.

python -m service --store PATH --port PORT. Standard library's HTTP, a thread a connection.
"""

import argparse
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import json
from pathlib import Path
import re
import sys

from answers import memory

from .reader import Asked, ChildReader, OwnReader, Reader

RANGE = re.compile(r"bytes=(\d+)-(\d+)$")


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, reader: Reader) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.reader = reader


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Bytes of the view, health, the bytes in use."""
        match self.path:
            case "/health":
                self._answer(HTTPStatus.OK, {"status": "ok"})
            case "/debug/live":
                self._live()
            case "/bed":
                self._bed()
            case _:
                self._answer(HTTPStatus.NOT_FOUND, {"error": "no such path"})

    def do_POST(self) -> None:
        match self.path:
            case "/session":
                self._answer(HTTPStatus.OK, {"size": self.server.reader.session()})
            case "/debug/trim":
                self._answer(HTTPStatus.OK, {"released": self.server.reader.trim()})
            case _:
                self._answer(HTTPStatus.NOT_FOUND, {"error": "no such path"})

    def _live(self) -> None:
        try:
            self._answer(HTTPStatus.OK, {"live_bytes": self.server.reader.live_bytes()})
        except memory.NotTold as error:
            self._answer(HTTPStatus.NOT_IMPLEMENTED, {"error": str(error)})

    def _bed(self) -> None:
        asked = RANGE.match(self.headers.get("Range", ""))
        if asked is None or int(asked[2]) < int(asked[1]):
            self._answer(HTTPStatus.BAD_REQUEST, {"error": "Range: bytes=FROM-TO is needed"})
            return
        start, end = int(asked[1]), int(asked[2])
        self.send_response(HTTPStatus.PARTIAL_CONTENT)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in self.server.reader.read(start, end + 1 - start):
            self.wfile.write(b"%x\r\n" % len(piece))
            self.wfile.write(piece)
            self.wfile.write(b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    def _answer(self, status: HTTPStatus, body: dict[str, object]) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        """A line a request, without the lookup of the client's name."""
        print(format % args, file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(prog="service", description=__doc__)
    parser.add_argument("--store", type=Path, required=True, help="folder of the zarr array")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, default=32, help="that decode")
    parser.add_argument("--ahead", type=int, default=32, help="chunks decoded ahead")
    parser.add_argument("--reader", choices=["own", "child"], default="own", help="who reads")
    args = parser.parse_args()
    if not (args.store / ".zarray").is_file():
        print(f"{args.store} is no zarr array: python -m load store makes one", file=sys.stderr)
        return 1
    asked = Asked(args.store, args.threads, args.ahead)
    reader = ChildReader(asked) if args.reader == "child" else OwnReader(asked)
    Server(args.port, reader).serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
