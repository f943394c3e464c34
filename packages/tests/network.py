#!/usr/bin/env python3
"""Runs a command in a network of its own: a loopback interface, a web server, and a DNS server that knows some names.

    unshare --net packages/tests/network.py PORT NAME... -- COMMAND...
"""

import fcntl
import http.server
import socket
import struct
import subprocess
import sys
import threading

SIOCSIFFLAGS, IFF_UP_LOOPBACK_RUNNING = 0x8914, 0x49
A, INTERNET, UNKNOWN_NAME = 1, 1, 3


class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *words):
        pass


def name_of(question: bytes) -> str:
    labels, place = [], 0
    while length := question[place]:
        labels.append(question[place + 1:place + 1 + length].decode())
        place += 1 + length
    return ".".join(labels).lower()


def answer(request: bytes, names: list[str]) -> bytes:
    """To one question: 127.0.0.1 where the name is known; nothing about it for other types; else that there is none."""
    identity = request[:2]
    question = request[12:12 + request[12:].index(0) + 5]
    kind = struct.unpack("!H", question[-4:-2])[0]
    known = name_of(question) in names
    record = struct.pack("!HHHIH4s", 0xC00C, A, INTERNET, 1, 4, b"\x7f\0\0\1") if known and kind == A else b""
    flags = 0x8580 | (0 if known else UNKNOWN_NAME)
    return identity + struct.pack("!HHHHH", flags, 1, bool(record), 0, 0) + question + record


def serve_names(server: socket.socket, names: list[str]) -> None:
    while True:
        request, client = server.recvfrom(512)
        server.sendto(answer(request, names), client)


def main() -> int:
    port, *names = sys.argv[1:sys.argv.index("--")]
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    fcntl.ioctl(server, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP_LOOPBACK_RUNNING))
    server.bind(("127.0.0.1", 53))
    threading.Thread(target=serve_names, args=(server, names), daemon=True).start()
    web = http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Answer)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    return subprocess.run(sys.argv[sys.argv.index("--") + 1:]).returncode


if __name__ == "__main__":
    sys.exit(main())
