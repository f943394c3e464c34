"""Sets transparent huge pages to `always` for some runs, and back.

The setting is the whole machine's: only root may, and only while nothing else is measured.
With `eager`, khugepaged scans without pause meanwhile, so that what it would do to returned
memory in minutes shows within the seconds of a run; that is part of the row's name.
"""

import contextlib
from pathlib import Path

FOLDER = Path("/sys/kernel/mm/transparent_hugepage")
ALWAYS = {"enabled": "always"}
EAGER = ALWAYS | {"khugepaged/scan_sleep_millisecs": "10", "khugepaged/alloc_sleep_millisecs": "10"}


def _present(text: str) -> str:
    """`always [madvise] never` says madvise."""
    return text.split("[")[1].split("]")[0] if "[" in text else text.strip()


@contextlib.contextmanager
def always(eager: bool):
    """Yields None while the setting is in force, or the reason why it cannot be."""
    before = {}
    try:
        try:
            for name, value in (EAGER if eager else ALWAYS).items():
                before[name] = _present((FOLDER / name).read_text())
                (FOLDER / name).write_text(value)
            trouble = None
        except OSError as problem:
            trouble = f"transparent huge pages cannot be set to always here: {problem.strerror}"
        yield trouble
    finally:
        for name, value in before.items():
            with contextlib.suppress(OSError):
                (FOLDER / name).write_text(value)
