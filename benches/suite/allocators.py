"""The allocators under trial: where each is found, how it is set up, what version it is.

A peer that is not there stays in the list with what would bring it (the Debian package,
or `make -C benches peers` with the reason why that failed), so that a table names it
instead of leaving it out.
"""

import glob
import hashlib
import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
PEERS = REPOSITORY / "benches/build/peers"
DECAY_1S = "background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:1000"


@dataclass(frozen=True)
class Allocator:
    """One column of a table. `library` is None for the allocator of the libc itself."""

    name: str
    what: str
    pattern: str | None = None
    install: str | None = None
    environment: dict = field(default_factory=dict)
    # A variant that only some rows ask for by name: it is no competitor.
    special: bool = False

    def library(self) -> Path | None:
        """The object to preload, or None when there is none on this machine."""
        found = sorted(glob.glob(self.pattern)) if self.pattern else []
        return Path(found[0]).resolve() if found else None

    def available(self) -> bool:
        return self.pattern is None or self.library() is not None

    def provider_matches(self, provider: str) -> bool:
        """Whether the object that a program named as its malloc is this allocator's."""
        if self.pattern is None:
            return os.path.basename(provider).startswith(("libc.so", "libc-", "ld-musl", "libc.musl"))
        return Path(provider).resolve() == self.library()

    def run_environment(self) -> dict:
        """The environment of a run: the caller's, without any allocator's settings but ours."""
        drop = ("LD_PRELOAD", "MALLOC_", "MIMALLOC_", "TCMALLOC_", "EBB_CONF", "GLIBC_TUNABLES")
        drop += ("PYTHONMALLOC", "PYTHONDEVMODE")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(drop)}
        if self.pattern is not None:
            kept["LD_PRELOAD"] = str(self.library())
        return kept | self.environment

    def describe(self) -> dict:
        """Version and identity for the record; no path of the machine's user."""
        entry = {"name": self.name, "what": self.what, "environment": self.environment}
        library = self.library()
        if self.pattern is None:
            entry["version"] = os.confstr("CS_GNU_LIBC_VERSION")
        elif library is None:
            return entry | {"missing": self.why_missing()}
        else:
            entry["file"] = library.name
            entry["sha256"] = hashlib.sha256(library.read_bytes()).hexdigest()
            entry |= _built(library) or {"version": _package_version(library) or _commit(library)}
        return entry

    def why_missing(self) -> str:
        """What would bring it; for a peer that was tried to build, why that failed."""
        failed = PEERS / f"{Path(self.pattern).stem.removeprefix('lib')}.failed" if self.pattern else None
        return f"{self.install}: {failed.read_text().strip()}" if failed and failed.is_file() else str(self.install)


def _output(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 and done.stdout.strip() else None


def _built(library: Path) -> dict | None:
    """What peers/build.py noted: the allocator's version, its crate, the commands."""
    note = library.with_name(library.stem.removeprefix("lib") + ".json")
    return json.loads(note.read_text()) if library.parent == PEERS and note.is_file() else None


def _package_version(library: Path) -> str | None:
    owner = _output("dpkg-query", "-S", str(library))
    if not owner:
        return None
    package = owner.splitlines()[0].rsplit(": ", 1)[0]
    return _output("dpkg-query", "-W", "-f", "${Package} ${Version}", package)


def _commit(library: Path) -> str:
    if REPOSITORY not in library.parents:
        return "unknown"
    commit = _output("git", "-C", str(REPOSITORY), "rev-parse", "--short", "HEAD") or "unknown"
    changed = _output("git", "-C", str(REPOSITORY), "status", "--porcelain", "--", "crates", "Cargo.toml")
    return f"commit {commit}" + (" with changes" if changed else "")


def _debian(file: str) -> str:
    return f"/usr/lib/*/{file}"


def _peer(name: str, file: str, what: str = "default", environment: dict | None = None) -> Allocator:
    """One that peers/build.py makes from its crate."""
    return Allocator(name, what, str(PEERS / f"lib{file}.so"), "make -C benches peers", environment or {})


_EBBMALLOC = str(REPOSITORY / "target/release/libebbmalloc.so")
_TUNED = {"MALLOC_CONF": DECAY_1S}
OURS = "ebbmalloc"

REGISTRY = [
    Allocator("glibc", "the libc's own", install=None),
    Allocator("jemalloc", "default", _debian("libjemalloc.so.2"), "apt-get install libjemalloc2"),
    Allocator("jemalloc-1s", DECAY_1S, _debian("libjemalloc.so.2"), "apt-get install libjemalloc2", _TUNED),
    _peer("jemalloc-new", "jemalloc-new"),
    _peer("jemalloc-new-1s", "jemalloc-new", DECAY_1S, _TUNED),
    Allocator("mimalloc", "default", _debian("libmimalloc.so.2"), "apt-get install libmimalloc2.0"),
    _peer("mimalloc-2", "mimalloc-2"),
    _peer("mimalloc-3", "mimalloc-3"),
    Allocator("tcmalloc", "gperftools, default", _debian("libtcmalloc_minimal.so.4"), "apt-get install libtcmalloc-minimal4"),
    # glibc registers rseq(2) itself: without this, it falls back to caches of threads.
    _peer("tcmalloc-google", "tcmalloc-google", environment={"GLIBC_TUNABLES": "glibc.pthread.rseq=0"}),
    _peer("snmalloc", "snmalloc"),
    _peer("rpmalloc", "rpmalloc"),
    Allocator(OURS, "default", _EBBMALLOC, "make build"),
    Allocator(
        "glibc-python-malloc", "the libc's own, PYTHONMALLOC=malloc", environment={"PYTHONMALLOC": "malloc"}, special=True
    ),
    Allocator("ebbmalloc-python-off", "python:off", _EBBMALLOC, "make build", {"EBB_CONF": "python:off"}, special=True),
    Allocator("ebbmalloc-off", "purge:off", _EBBMALLOC, "make build", {"EBB_CONF": "purge:off"}, special=True),
]


def chosen(names: list[str] | None, extra: list[str]) -> list[Allocator]:
    """The registry, narrowed to `names`, and `extra` entries of the form NAME=PATH[;VAR=VALUE...]."""
    registry = list(REGISTRY)
    for text in extra:
        name, _, rest = text.partition("=")
        path, *settings = rest.split(";")
        if not name or not path:
            raise ValueError(f"not NAME=PATH[;VAR=VALUE...]: {text}")
        environment = dict(setting.split("=", 1) for setting in settings)
        registry = [a for a in registry if a.name != name]
        registry.append(Allocator(name, "; ".join(settings) or "given", os.path.abspath(path), path, environment))
    if names:
        unknown = set(names) - {a.name for a in registry}
        if unknown:
            raise ValueError(f"unknown allocator: {', '.join(sorted(unknown))}")
        registry = [a for a in registry if a.name in names]
    return registry
