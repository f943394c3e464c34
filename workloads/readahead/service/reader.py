"""Who reads for the server: the server's own process, or a child that it has spawned.

A pass opens the store, reads, drops everything and collects, as
the real server does for every file that is opened.
"""

from collections.abc import Iterator
from dataclasses import dataclass
import gc
import multiprocessing
from multiprocessing.connection import Connection
from pathlib import Path
import threading
from typing import Protocol

import zarr

from answers import memory

from .readahead import Readahead


@dataclass(frozen=True, slots=True)
class Asked:
    store: Path
    threads: int
    ahead: int


class Reader(Protocol):
    def session(self) -> int:
        """Opens the store once and reads its first row of chunks; the length of the whole view."""

    def read(self, offset: int, size: int) -> Iterator[bytes]:
        """One pass."""

    def trim(self) -> bool:
        """malloc_trim(0) in the process that reads, and in this one."""

    def live_bytes(self) -> int:
        """Bytes in use, in both."""


class OwnReader:
    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        # zarr decodes on threads of its own, by default hardly more than there are processors.
        zarr.config.set({"threading.max_workers": asked.threads})

    def session(self) -> int:
        with self._open() as opened:
            for _ in opened.read(0, opened.row_bytes):
                pass
            return opened.size

    def read(self, offset: int, size: int) -> Iterator[bytes]:
        with self._open() as opened:
            yield from opened.read(offset, size)
        del opened
        gc.collect()

    def trim(self) -> bool:
        return memory.trim()

    def live_bytes(self) -> int:
        return memory.in_use().live_bytes

    def _open(self) -> Readahead:
        return Readahead(self._asked.store, self._asked.threads, self._asked.ahead)


class ChildReader:
    """Has a child process read, which lives as long as this one; one pass at a time."""

    def __init__(self, asked: Asked) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._one_at_a_time = threading.Lock()
        context.Process(target=_serve, args=(theirs, asked), daemon=True).start()
        theirs.close()

    def session(self) -> int:
        return int(self._ask("session"))

    def read(self, offset: int, size: int) -> Iterator[bytes]:
        with self._one_at_a_time:
            self._pipe.send(("read", offset, size))
            while piece := self._pipe.recv_bytes():
                yield piece

    def trim(self) -> bool:
        return bool(self._ask("trim")) | memory.trim()

    def live_bytes(self) -> int:
        return int(self._ask("live")) + memory.in_use().live_bytes

    def _ask(self, what: str) -> int:
        with self._one_at_a_time:
            self._pipe.send((what,))
            answer: int = self._pipe.recv()
            return answer


def _serve(pipe: Connection, asked: Asked) -> None:
    """The child: answers until its parent is gone."""
    reader = OwnReader(asked)
    while True:
        try:
            question = pipe.recv()
        except EOFError:
            return
        match question:
            case ("session",):
                pipe.send(reader.session())
            case ("trim",):
                pipe.send(reader.trim())
            case ("live",):
                pipe.send(reader.live_bytes())
            case ("read", int(offset), int(size)):
                for piece in reader.read(offset, size):
                    pipe.send_bytes(piece)
                pipe.send_bytes(b"")
