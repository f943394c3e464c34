"""Diagnosis of memory for a controlled trial: a trim on request, and the bytes in use.

Neither runs unless asked for. Bytes in use are what the allocator in charge counts as handed out,
plus what CPython's own object allocator has handed out of the arenas that it maps itself. Nothing
is estimated: where the allocator in charge offers no count, the answer is 501.
"""

import ctypes
import os
from pathlib import Path
import re
from typing import Annotated

from fastapi import APIRouter, HTTPException, status
from pydantic import BaseModel, Field

router = APIRouter(prefix="/debug")

_process = ctypes.CDLL(None)


class Trimmed(BaseModel):
    """What malloc_trim(0) did."""

    released: bool
    rss_before_bytes: Annotated[int, Field(ge=0)]
    rss_after_bytes: Annotated[int, Field(ge=0)]


class Live(BaseModel):
    """Bytes in use, and by which count."""

    live_bytes: int
    malloc_bytes: int
    malloc_method: str
    object_allocator_bytes: int


class _DlInfo(ctypes.Structure):
    _fields_ = [
        ("dli_fname", ctypes.c_char_p),
        ("dli_fbase", ctypes.c_void_p),
        ("dli_sname", ctypes.c_char_p),
        ("dli_saddr", ctypes.c_void_p),
    ]


class _Mallinfo2(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
        ).split()
    ]


@router.post("/trim")
async def trim() -> Trimmed:
    """Calls malloc_trim(0) of the allocator in charge."""
    before = resident_bytes()
    released = bool(_process.malloc_trim(0))
    return Trimmed(released=released, rss_before_bytes=before, rss_after_bytes=resident_bytes())


@router.get("/live")
async def live() -> Live:
    """Tells the bytes in use."""
    found = malloc_in_use()
    if found is None:
        raise HTTPException(
            status.HTTP_501_NOT_IMPLEMENTED, f"{_home('malloc')} counts no bytes in use"
        )
    used, method = found
    objects = object_allocator_in_use()
    return Live(
        live_bytes=used + objects,
        malloc_bytes=used,
        malloc_method=method,
        object_allocator_bytes=objects,
    )


def resident_bytes() -> int:
    """Resident memory of this process, as the kernel tells it."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def malloc_in_use() -> tuple[int, str] | None:
    """Bytes handed out by malloc and not freed, from the object that malloc comes from.

    A preloaded allocator leaves glibc's mallinfo2 in place, which then tells of an idle heap:
    a count is believed only if it comes from malloc's own object.
    """
    owner = _home("malloc")
    if owner is None:
        return None
    if _home("mallctl") == owner:
        return _jemalloc_allocated(), "jemalloc stats.allocated"
    if _home("mallinfo2") == owner:
        _process.mallinfo2.restype = _Mallinfo2
        info = _process.mallinfo2()
        return info.uordblks + info.hblkhd, "mallinfo2 uordblks + hblkhd"
    if _home("MallocExtension_GetNumericProperty") == owner:
        value = ctypes.c_size_t()
        name = b"generic.current_allocated_bytes"
        if _process.MallocExtension_GetNumericProperty(name, ctypes.byref(value)):
            return value.value, "tcmalloc generic.current_allocated_bytes"
    return None


def object_allocator_in_use() -> int:
    """Bytes in blocks that CPython's object allocator has handed out; 0 where it is not used.

    It is the figure of CPython's own statistics, which are written to a C stream.
    """
    text = ctypes.c_char_p()
    size = ctypes.c_size_t()
    _process.open_memstream.restype = ctypes.c_void_p
    stream = ctypes.c_void_p(_process.open_memstream(ctypes.byref(text), ctypes.byref(size)))
    if not stream:
        return 0
    ctypes.pythonapi._PyObject_DebugMallocStats(stream)
    _process.fclose(stream)
    found = re.search(rb"# bytes in allocated blocks\s*=\s*([\d,]+)", text.value or b"")
    _process.free(text)
    return int(found[1].replace(b",", b"")) if found else 0


def _jemalloc_allocated() -> int:
    epoch = ctypes.c_uint64(1)
    width = ctypes.c_size_t(ctypes.sizeof(epoch))
    # jemalloc refreshes its statistics when the epoch is written.
    _process.mallctl(b"epoch", ctypes.byref(epoch), ctypes.byref(width), ctypes.byref(epoch), width)
    value = ctypes.c_size_t()
    width = ctypes.c_size_t(ctypes.sizeof(value))
    _process.mallctl(b"stats.allocated", ctypes.byref(value), ctypes.byref(width), None, 0)
    return value.value


def _home(symbol: str) -> bytes | None:
    """The path of the object that a symbol of this process comes from."""
    try:
        address = ctypes.cast(getattr(_process, symbol), ctypes.c_void_p)
    except AttributeError:
        return None
    info = _DlInfo()
    if not _process.dladdr(address, ctypes.byref(info)):
        return None
    path: bytes | None = info.dli_fname
    return path
