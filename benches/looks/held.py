"""A Python process in a known state: held.py STATE [MB]. Prints what is true, as held.c does, and waits."""

import array
import ctypes
import gc
import json
import os
import random
import re
import sys
import tempfile
import threading

libc = ctypes.CDLL(None)
chance = random.Random(5)


class Mallinfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in
                "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]


def anonymous(field="Anonymous:", pid="self"):
    with open("/proc/%s/smaps_rollup" % pid) as file:
        return sum(int(line.split()[1]) * 1024 for line in file if line.startswith(field))


def malloc_live():
    """malloc's own count of live bytes."""
    value, size = ctypes.c_size_t(), ctypes.c_size_t(8)
    if hasattr(libc, "mallctl"):
        epoch = ctypes.c_uint64(1)
        libc.mallctl(b"epoch", None, None, ctypes.byref(epoch), ctypes.c_size_t(8))
        libc.mallctl(b"stats.allocated", ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0))
        return value.value
    if hasattr(libc, "MallocExtension_GetNumericProperty"):
        libc.MallocExtension_GetNumericProperty(b"generic.current_allocated_bytes", ctypes.byref(value))
        return value.value
    libc.mallinfo2.restype = Mallinfo
    info = libc.mallinfo2()
    return info.uordblks + info.hblkhd


def arenas():
    """Bytes of live objects in CPython's arenas, and of the arenas."""
    with tempfile.TemporaryFile() as file:
        saved = os.dup(2)
        os.dup2(file.fileno(), 2)
        sys._debugmallocstats()
        libc.fflush(None)
        os.dup2(saved, 2)
        os.close(saved)
        file.seek(0)
        text = file.read().decode()
    used = re.search(r"# bytes in allocated blocks\s+=\s+([\d,]+)", text)
    if not used:
        return 0, 0
    total = re.search(r"(?m)^\d+ arenas \* \d+ bytes/arena\s+=\s+([\d,]+)", text)
    number = lambda found: int(found.group(1).replace(",", "")) if found else 0
    return number(used), number(total)


def records(count):
    return [{"id": i, "pair": (float(i), str(i))} for i in range(count)]


def objects(mb):
    return records(mb * 2500)


def objects_pinned(mb):
    """One object in 40 survives, so nearly every arena stays."""
    made = [(float(i), str(i)) for i in range(mb * 5500)]
    kept = made[::40]
    del made
    return kept


def objects_gone(mb):
    made = objects(mb)
    del made
    gc.collect()


def buffers(mb, least=1500, most=30000, part=0):
    made, total = [], 0
    while total < mb * 1000000:
        size = chance.randint(least, most)
        made.append(bytes(size))
        made[-1] = b"x" * size
        total += size
    kept = [one for one in made if chance.random() * 100 >= part]
    kept.append(b"z" * 2000)
    return kept


def buffers_freed(mb):
    return buffers(mb, part=97)


def buffers_half(mb):
    return buffers(mb, 600, 1500, part=60)


def by_threads(mb, part=97):
    kept, gate = [], threading.Barrier(9)

    def work():
        kept.append(buffers(mb // 8, part=part))
        gate.wait()
        threading.Event().wait()
    for _ in range(8):
        threading.Thread(target=work, daemon=True).start()
    gate.wait()
    return kept


def strings(mb):
    return {"key %d" % i: "value %d" % i * 8 for i in range(mb * 4000)}


def cycles(mb):
    """Garbage in cycles with the collector off is live to every allocator."""
    gc.disable()
    for i in range(mb * 1800):
        one = {"me": None, "text": "x" * 200}
        one["me"] = one


def numbers(mb):
    return array.array("d", range(mb * 125000))


def mapped(mb):
    import mmap
    memory = mmap.mmap(-1, mb * 1000000, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.write(b"x" * (mb * 1000000))
    return memory


def shared(mb):
    from multiprocessing import shared_memory
    memory = shared_memory.SharedMemory(create=True, size=mb * 1000000)
    memory.buf[:] = b"x" * (mb * 1000000)
    memory.unlink()
    return memory


def workers(mb):
    """Four forked workers that read what the parent has made, set aside for the collector."""
    kept = objects(mb)
    gc.freeze()
    for _ in range(4):
        out, into = os.pipe()
        if os.fork() == 0:
            os.write(into, b"x")
            while os.getppid() != 1:
                threading.Event().wait(0.2)
            os._exit(0)
        os.read(out, 1)
    return kept


def ndarray(mb, count=20, part=0):
    import numpy
    made = [numpy.ones(mb * 125000 // count) for _ in range(count)]
    return [one for i, one in enumerate(made) if i * 100 >= part * count or i == count - 1]


def small_ndarrays(mb):
    import numpy
    return [numpy.full(chance.randint(10, 400), 1.0) for _ in range(mb * 500)]


def small_ndarrays_freed(mb):
    made = small_ndarrays(mb)
    return [one for one in made if chance.random() < 0.03]


def frame(mb):
    import numpy
    import pandas
    return pandas.DataFrame({"c%d" % i: numpy.arange(mb * 12500, dtype=float) for i in range(10)})


def frame_freed(mb):
    import pandas
    made = pandas.DataFrame({"a": ["text %d" % i for i in range(mb * 6000)]})
    counts = made["a"].value_counts()
    del made, counts
    gc.collect()


def arrow(mb):
    import pyarrow
    return pyarrow.array(range(mb * 125000), type=pyarrow.int64())


def arrow_system(mb):
    return arrow(mb)


def polars_frame(mb):
    import polars
    return polars.DataFrame({"a": polars.arange(0, mb * 125000, eager=True)})


def polars_freed(mb):
    import polars
    made = [polars.DataFrame({"t": ["text %d of them" % (i * n) for i in range(20000)]}) for n in range(mb // 1)]
    kept = made[::25]
    del made
    gc.collect()
    return kept


def polars_freed_all(mb):
    polars_freed(mb)


def main():
    state, mb = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 80
    for module in ("numpy", "pandas", "pyarrow", "polars"):
        if module in os.environ.get("HELD_IMPORT", ""):
            __import__(module)
    rest = anonymous() - arenas()[1] - malloc_live()
    children = {"workers": 4}.get(state, 0)
    kept = globals()[state](mb)
    if state not in ("cycles", "workers"):
        gc.collect()
    objects_live, objects_all = arenas()
    live = objects_live + malloc_live()
    other = mb * 1000000 if state == "mapped" else 0
    held = max(0, anonymous() - max(rest, 0) - objects_all - malloc_live() - other) + objects_all - objects_live
    known = not os.environ.get("HELD_UNKNOWN") and not children
    print(json.dumps({"live": live if known else None, "held": held if known else None, "other": other}), flush=True)
    sys.stdin.read()
    return kept


main()
