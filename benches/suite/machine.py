"""What a result must say about the machine it was taken on. Never its name or user."""

import os
import platform
import re
from pathlib import Path


def _first(path: str, pattern: str) -> str | None:
    try:
        found = re.search(pattern, Path(path).read_text(), re.MULTILINE)
    except OSError:
        return None
    return found.group(1).strip() if found else None


def describe() -> dict:
    return {
        "cpu": _first("/proc/cpuinfo", r"^model name\s*:\s*(.*)$") or platform.machine(),
        "cpus_usable": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        "page_bytes": os.sysconf("SC_PAGE_SIZE"),
        "kernel": platform.release().split("-")[0],
        "transparent_huge_pages": _first("/sys/kernel/mm/transparent_hugepage/enabled", r"\[(\w+)\]"),
        "swap_kib": _first("/proc/meminfo", r"^SwapTotal:\s*(\d+)"),
        "overcommit_memory": _first("/proc/sys/vm/overcommit_memory", r"(\d+)"),
        "load_average_at_start": os.getloadavg()[0],
        "system": _first("/etc/os-release", r'^PRETTY_NAME="?([^"\n]*)') or platform.system(),
    }


def short_name(machine: dict) -> str:
    """For the folder of results: the processor and how many of it, such as amd-epyc-2cpu."""
    words = re.findall(r"[a-z0-9]+", re.sub(r"\(.*?\)", " ", machine["cpu"].lower()))
    return "-".join(words[:2]) + f"-{machine['cpus_usable']}cpu"
