"""ebbmalloc for Python: where the library is, and what the heap of this process holds.

    LD_PRELOAD=$(python -c 'import ebbmalloc; print(ebbmalloc.library())') python app.py
    python -m ebbmalloc run -- python app.py
"""

import ctypes
import os
from typing import NamedTuple

__all__ = ["NotLoaded", "Stats", "library", "stats", "trim"]


class NotLoaded(RuntimeError):
    """This process does not run on ebbmalloc."""


class Stats(NamedTuple):
    """The heap of this process now, in bytes. docs/statistics.md explains the figures."""

    live_bytes: int
    """In blocks that the program holds."""
    free_bytes: int
    """Free, on pages that may be resident."""
    returnable_bytes: int
    """What `trim` would return."""
    mapped_bytes: int
    """Address space made usable so far."""
    metadata_bytes: int
    """The allocator's own; an upper bound of what is resident."""


def library() -> str:
    """The path of libebbmalloc.so, for LD_PRELOAD."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libebbmalloc.so")
    if not os.path.exists(path):
        raise FileNotFoundError("{} is missing: install ebbmalloc again from its wheel".format(path))
    return path


def stats() -> Stats:
    """What the heap of this process holds. Raises NotLoaded where malloc is not ebbmalloc's."""
    process = _process()
    process.mallinfo2.restype = _Mallinfo2
    info = process.mallinfo2()
    return Stats(
        live_bytes=info.uordblks,
        free_bytes=info.fordblks,
        returnable_bytes=info.keepcost,
        mapped_bytes=_size(process, b"stats.mapped"),
        metadata_bytes=_size(process, b"stats.metadata"),
    )


def trim() -> bool:
    """Returns all free pages of this process to the kernel; whether there were any. Raises NotLoaded as `stats`."""
    process = _process()
    process.malloc_trim.argtypes = [ctypes.c_size_t]
    return bool(process.malloc_trim(0))


_FIELDS = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()


class _Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in _FIELDS]


def _process() -> ctypes.CDLL:
    """The symbols of this process, if ebbmalloc is in charge."""
    process = ctypes.CDLL(None)
    version = ctypes.c_char_p()
    length = ctypes.c_size_t(ctypes.sizeof(version))
    try:
        process.mallctl.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
        failed = process.mallctl(b"version", ctypes.byref(version), ctypes.byref(length), None, 0)
    except AttributeError:
        failed = 1
    if failed or b"ebbmalloc" not in (version.value or b""):
        raise NotLoaded("this process does not run on ebbmalloc: start it with `python -m ebbmalloc run -- python ...`")
    return process


def _size(process: ctypes.CDLL, name: bytes) -> int:
    """A figure of mallctl; 0 where this version has none."""
    epoch = ctypes.c_uint64(1)
    process.mallctl(b"epoch", None, None, ctypes.byref(epoch), ctypes.sizeof(epoch))
    value = ctypes.c_size_t()
    length = ctypes.c_size_t(ctypes.sizeof(value))
    process.mallctl(name, ctypes.byref(value), ctypes.byref(length), None, 0)
    return value.value
