"""The memory of this process: what is resident, what is in use, and a trim.

For the services of this folder, which offer it to the trial (routes.py). Bytes in use are what the
allocator in charge counts as handed out, plus what CPython's own object allocator has handed out of
the arenas that it maps itself. Nothing is estimated: an allocator without a count has no figure.
"""

import ctypes
from dataclasses import dataclass
import functools
import os
from pathlib import Path
import re
from typing import Any

_process = ctypes.CDLL(None)


@dataclass(frozen=True, slots=True)
class InUse:
    """Bytes in use, and by which count."""

    malloc_bytes: int
    malloc_method: str
    object_allocator_bytes: int

    @property
    def live_bytes(self) -> int:
        """All of them."""
        return self.malloc_bytes + self.object_allocator_bytes


class NotTold(Exception):
    """Nobody counts the bytes in use."""


class _DlInfo(ctypes.Structure):
    _fields_ = [
        ("dli_fname", ctypes.c_char_p),
        ("dli_fbase", ctypes.c_void_p),
        ("dli_sname", ctypes.c_char_p),
        ("dli_saddr", ctypes.c_void_p),
    ]


class _DlPhdrInfo(ctypes.Structure):
    # The loader passes more; its size comes as an argument of its own.
    _fields_ = [("dlpi_addr", ctypes.c_void_p), ("dlpi_name", ctypes.c_char_p)]


_Visitor = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_DlPhdrInfo), ctypes.c_size_t, ctypes.c_void_p)


class _Mallinfo2(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ("arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost").split()
    ]


def trim() -> bool:
    """Calls malloc_trim(0) of the allocator in charge; whether it gave anything back."""
    return bool(_process.malloc_trim(0))


def in_use() -> InUse:
    found = malloc_in_use()
    objects = object_allocator_in_use()
    if found is None or objects is None:
        missing = "the allocator in charge" if found is None else "this Python"
        raise NotTold(f"{missing} tells no count of bytes in use")
    used, method = found
    return InUse(used, method, objects)


def resident_bytes() -> int:
    """Resident memory of this process, as the kernel tells it."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def malloc_in_use() -> tuple[int, str] | None:
    """Bytes handed out by malloc and not freed, and the name of the count.

    A preloaded allocator leaves glibc's mallinfo2 in place, which then tells of an idle heap: a
    count is believed only if it comes from the object that malloc comes from.
    """
    owner = malloc_object()
    if owner is None:
        return None
    if _defines(owner, "MallocExtension_GetNumericProperty"):
        value = ctypes.c_size_t()
        name = b"generic.current_allocated_bytes"
        if owner.MallocExtension_GetNumericProperty(name, ctypes.byref(value)):
            return value.value, "tcmalloc generic.current_allocated_bytes"
    if _defines(owner, "mallinfo2"):
        owner.mallinfo2.restype = _Mallinfo2
        info = owner.mallinfo2()
        return info.uordblks + info.hblkhd, "mallinfo2 uordblks + hblkhd"
    if _defines(owner, "mallctl"):
        return _jemalloc_allocated(owner), "jemalloc stats.allocated"
    return None


def object_allocator_in_use() -> int | None:
    """Bytes in blocks that CPython's object allocator has handed out; 0 where it is not in use.

    It is the figure of CPython's own statistics, which are written to a C stream. A Python that
    does not export the function that writes them gives None.
    """
    try:
        write_statistics = ctypes.pythonapi._PyObject_DebugMallocStats
    except AttributeError:
        return None
    text = ctypes.c_char_p()
    size = ctypes.c_size_t()
    _process.open_memstream.restype = ctypes.c_void_p
    stream = ctypes.c_void_p(_process.open_memstream(ctypes.byref(text), ctypes.byref(size)))
    if not stream:
        return None
    write_statistics(stream)
    _process.fclose(stream)
    found = re.search(rb"# bytes in allocated blocks\s*=\s*([\d,]+)", text.value or b"")
    _process.free(text)
    return int(found[1].replace(b",", b"")) if found else 0


def _jemalloc_allocated(jemalloc: ctypes.CDLL) -> int:
    epoch = ctypes.c_uint64(1)
    width = ctypes.c_size_t(ctypes.sizeof(epoch))
    # jemalloc refreshes its statistics when the epoch is written.
    jemalloc.mallctl(b"epoch", ctypes.byref(epoch), ctypes.byref(width), ctypes.byref(epoch), width)
    value = ctypes.c_size_t()
    width = ctypes.c_size_t(ctypes.sizeof(value))
    jemalloc.mallctl(b"stats.allocated", ctypes.byref(value), ctypes.byref(width), None, 0)
    return value.value


@functools.cache
def malloc_object() -> ctypes.CDLL | None:
    """The shared object whose malloc is in charge: the first in load order that defines one.

    The address of malloc itself does not tell it: in an executable at a fixed address that is a
    stub of the executable.
    """
    for path in _loaded_objects():
        try:
            loaded = ctypes.CDLL(path, mode=os.RTLD_LAZY | os.RTLD_NOLOAD)
        except OSError:  # the kernel's vdso is no file
            continue
        if _defines(loaded, "malloc"):
            return loaded
    return None


def _loaded_objects() -> list[str]:
    """Paths of the shared objects of this process, in load order."""
    paths: list[str] = []

    def note(info: Any, _size: int, _data: Any) -> int:  # noqa: ANN401, ctypes' own types
        name: bytes = info.contents.dlpi_name
        if name:
            paths.append(os.fsdecode(name))
        return 0

    _process.dl_iterate_phdr(_Visitor(note), None)
    return paths


def _defines(loaded: ctypes.CDLL, symbol: str) -> bool:
    """Whether a symbol is the object's own, not one of an object that it needs."""
    try:
        address = ctypes.cast(getattr(loaded, symbol), ctypes.c_void_p)
    except AttributeError:
        return False
    info = _DlInfo()
    found = _process.dladdr(address, ctypes.byref(info))
    return bool(found) and os.fsdecode(info.dli_fname) == loaded._name
