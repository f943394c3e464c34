"""The labelled looks. Each is a process, what it does, and the verdict that its own figures allow."""

from dataclasses import dataclass, field

USE, HELD, OTHER, BOTH, UNKNOWN = "in-use", "retention", "not-heap", "mixed", "undecidable"


@dataclass
class Case:
    name: str
    label: str
    program: list
    preload: str = ""
    env: dict = field(default_factory=dict)
    settle: float = 0
    figures: bool = True      # live and held bytes are compared, too
    file: str = ""            # the preloaded file is "deleted" or "replaced" under the process
    user: str = ""
    limit_mb: int = 0         # a memory cgroup of its own with this limit
    stopped: bool = False
    also: tuple = ()          # verdicts that are right as well
    unsaid: str = ""          # what the sentence must not say


CASES = []


def case(name, label, *program, **options):
    CASES.append(Case(name, label, list(program), **options))


# One state under every allocator. The second word is the label under glibc, the third under the others.
STATES = [
    ("small blocks, live", USE, USE, "held a:64:512:80"),
    ("large blocks, live", USE, USE, "held a:1000000:8000000:120"),
    ("all sizes, live in 8 threads", USE, USE, "held th:8:16:20000:90:0:stay"),
    ("small blocks, all but one freed", HELD, HELD, "held a:40:900:90 f:100"),
    ("8 threads, 97 % freed", HELD, HELD, "held th:8:100:5000:100:97:stay"),
    ("48 B, one in ten lives", HELD, HELD, "held a:48:48:90 f:90"),
    ("200 B, 30 % live", HELD, HELD, "held a:200:200:110 f:70"),
    ("3 KB, half freed in runs", HELD, HELD, "held a:2500:3500:110 runs:40:40"),
    ("sizes shift from 100 B to 1 KB", HELD, HELD, "held a:90:110:90 f:96 a:900:1100:20"),
    ("freed by another thread", HELD, HELD, "held th:6:500:9000:90:0:stay f:95"),
]
for allocator in ("", "jemalloc", "mimalloc", "tcmalloc", "ebbmalloc", "mimalloc3"):
    for name, plain, others, program in STATES:
        label, rest = (others if allocator else plain), []
        if allocator == "ebbmalloc":
            # Whole free pages are returned without a call; live objects and the pages they pin stay.
            rest = ["sleep:5000"]
            label = HELD if name[:4] in ("48 B", "200 ", "size") else USE
        case(f"{allocator or 'glibc'}: {name}", label, *program.split(), *rest, preload=allocator)
for name, label, program in [
    ("small blocks, live", USE, "a:64:512:80"), ("large blocks, live", USE, "a:1000000:8000000:120"),
    ("threads, live", USE, "th:4:16:20000:90:0:stay"), ("48 B, one in ten lives", HELD, "a:48:48:90 f:90"),
    ("200 B, 30 % live", HELD, "a:200:200:110 f:70"), ("all freed", USE, "a:300:9000:90 f:100"),
]:
    case(f"musl: {name}", label, "held-musl", *program.split())
for name, label, program in [
    ("live", USE, "a:64:9000:90"), ("freed", HELD, "a:64:9000:90 f:97"), ("pinned", HELD, "a:64:64:80 f:90"),
]:
    case(f"static glibc: {name}", label, "held-static", *program.split())
    case(f"jemalloc linked in: {name}", label, "held-jemalloc", *program.split())

# glibc in its corners
for name, label, program in [
    ("a buffer that grew to 90 MB", USE, "grow:1:90"),
    ("a block that shrank from 100 MB", USE, "a:100000000:100000000:100 shrink:2"),
    ("200 MB never touched", USE, "c:1000000:1000000:200"),
    ("aligned to 64 KiB, live", USE, "aligned:65536:70000:80"),
    ("aligned to 4 KiB, freed", HELD, "aligned:4096:5000:90 f:95"),
    ("freed, then trimmed", USE, "a:200:3000:100 f:99 trim"),
    ("large blocks freed", USE, "a:1000000:8000000:120 f:100"),
    ("secondary arenas, threads ended, live", USE, "th:6:100:5000:90:0:end"),
    ("secondary arenas, threads ended, freed", HELD, "th:6:100:5000:90:98:end"),
    ("threads of large blocks, freed", USE, "th:4:400000:900000:120:96:stay"),
    ("one arena for all", HELD, "mallopt:8:1 th:8:100:5000:90:97:stay"),
    ("no mmap for large blocks: freed", HELD, "mallopt:4:0 a:300000:3000000:120 f:60 a:3000:3000:1"),
    ("trim threshold of 1 GB", HELD, "mallopt:1:1000000000 a:3000:90000:100 f:100 a:10:10:0"),
    ("the break in use, 90 MB between by sbrk", OTHER, "a:200:900:10 sbrk:90 a:200:900:10"),
    ("while it allocates, live", USE, "a:300:3000:80 tick:2"),
    ("while it allocates and frees", USE, "a:300:3000:80 churn:1"),
    ("pinned while it allocates", HELD, "a:100:100:80 f:85 churn:1"),
]:
    options = {"figures": False} if "churn" in program else {}
    case(f"glibc: {name}", label, "held", *program.split(), **options)
for how in ("huge", "nohuge", "dump", "fork", "readonly", "lock"):
    case(f"split mappings ({how}): live", USE, "held", "a:4000000:9000000:120", f"split:{how}")
case("split mappings (huge): half freed, live", USE, "held", "a:4000000:9000000:200", "split:huge", "f:50")
case("split mappings (dump), beside retention", HELD, "held", "a:4000000:5000000:60", "split:dump",
     "a:100:900:90", "f:100", "a:4000000:5000000:40", "split:dump")
case("mlockall, live", USE, "held", "lockall", "a:300:5000:80")
case("mlockall, freed", HELD, "held", "lockall", "a:300:5000:100", "f:97")
case("mlockall after a burst", HELD, "held", "a:300:5000:100", "f:97", "lockall")
NO_CACHE = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}
case("6 million fastbin chunks", HELD, "held", "th:1:24:24:150:97:stay", env=NO_CACHE)
case("5 million blocks of 24 B, live", USE, "held", "a:24:24:105", env=NO_CACHE)
case("1 million fastbin chunks", HELD, "held", "th:1:72:88:90:95:stay", env=NO_CACHE)
case("fastbins of 8 threads", HELD, "held", "th:8:40:100:90:95:stay", env=NO_CACHE)
case("tcache of 30,000 blocks a size", HELD, "held", "th:4:600:1000:80:97:stay",
     env={"GLIBC_TUNABLES": "glibc.malloc.tcache_count=60000"})
case("huge pages by tunable, live", USE, "held", "a:300:9000:90", env={"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"})
case("huge pages by tunable, freed", HELD, "held", "a:300:9000:110", "f:97",
     env={"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}, figures=False)
case("arenas limited to 2", HELD, "held", "th:8:300:9000:90:97:stay", env={"MALLOC_ARENA_MAX": "2"})
case("perturbed blocks, live", USE, "held", "a:300:3000:80", env={"MALLOC_PERTURB_": "165"})

# Not malloc's
for name, label, program in [
    ("private mapping", OTHER, "mmap:100"), ("4000 pieces", OTHER, "pieces:4000:5"),
    ("shared anonymous", OTHER, "shared:90"), ("memfd, shared", OTHER, "memfd:90"),
    ("memfd, private", OTHER, "memfd:90:private"), ("tmpfs file, shared", OTHER, "shm:90:shared"),
    ("tmpfs file, private", OTHER, "shm:90:private"), ("System V", OTHER, "sysv:90"),
    ("file, shared", OTHER, "file:90:shared"), ("file, private copies", OTHER, "file:90:private"),
    ("file, read", OTHER, "file:90:read"), ("300 stacks of 300 KB", OTHER, "stacks:300:300"),
    ("40 stacks of 2 MB", OTHER, "stacks:40:2000"), ("80 MB by sbrk alone", OTHER, "sbrk:80"),
    ("retention and a mapping", BOTH, "a:200:3000:80 f:96 a:3000:3000:1 mmap:70"),
    ("retention and shared memory", BOTH, "a:200:3000:80 f:96 a:3000:3000:1 shm:70:shared"),
    ("retention and stacks", BOTH, "a:200:3000:80 f:96 a:3000:3000:1 stacks:200:400"),
    ("live and a small mapping", USE, "a:200:3000:80 mmap:20"),
    ("mlockall and a mapping", OTHER, "lockall mmap:100"),
]:
    case(f"not malloc's: {name}", label, "held", *program.split())
case("jemalloc: kept pages and a mapping", BOTH, "held", "a:200:3000:80", "f:96", "mmap:70", preload="jemalloc")
case("jemalloc with MADV_FREE, freed", HELD, "held", "a:200:3000:90", "f:96", preload="jemalloc",
     env={"MALLOC_CONF": "dirty_decay_ms:0,muzzy_decay_ms:-1"})
case("jemalloc without retain, large freed", USE, "held", "a:200000:3000000:90", "f:100", "trim", preload="jemalloc")
case("jemalloc, 1 arena, no caches", HELD, "held", "th:8:100:4000:90:97:stay", preload="jemalloc",
     env={"MALLOC_CONF": "narenas:1,tcache:false"})
case("tcmalloc, aggressive decommit, freed", USE, "held", "a:5000:300000:90", "f:100", preload="tcmalloc",
     env={"TCMALLOC_AGGRESSIVE_DECOMMIT": "t"})
case("tcmalloc, released", USE, "held", "a:5000:300000:90", "f:100", "trim", preload="tcmalloc")

# A preloaded file that is gone from the disk
for allocator in ("jemalloc", "mimalloc", "tcmalloc", "ebbmalloc"):
    case(f"{allocator}, file deleted: live", USE, "held", "a:64:9000:90", preload=allocator, file="deleted")
    label, rest = (USE, ["sleep:5000"]) if allocator == "ebbmalloc" else (HELD, [])
    case(f"{allocator}, file replaced: freed", label, "held", "a:640:9000:90", "f:98", *rest, preload=allocator,
         file="replaced")

# Allocators that are out of sight
case("homemade allocator, live", UNKNOWN, "held", "a:200:3000:90", preload="homemade", env={"HELD_HEADER": "16"})
case("homemade allocator, freed", UNKNOWN, "held", "a:200:3000:90", "f:97", preload="homemade",
     env={"HELD_HEADER": "16"})
TLS = {"GLIBC_TUNABLES": "glibc.rtld.optional_static_tls=65536"}
for name in ("jemalloc", "mimalloc3"):
    env = dict(TLS, HELD_EXTENSION=f"extension-{name}.so")
    case(f"extension with its own {name}, live", USE, "held", "ext:90:0", env=env, figures=False)
    case(f"extension with its own {name}, freed", HELD, "held", "ext:90:97", env=env, figures=False)

# Forked trees, by PSS; a look must not unshare their pages.
for name, label, program, options in [
    ("4 children read", USE, "a:100:3000:100 fork:4", {}),
    ("3 children write all", USE, "a:100:3000:60 fork:3:touch", {}),
    ("3 children with 30 MB each", USE, "a:100:3000:40 fork:3:more", {}),
    ("3 children of a process that freed", HELD, "a:100:3000:100 f:97 fork:3", {}),
    ("6 children, large blocks", USE, "a:1000000:9000000:120 fork:6", {}),
    ("3 children under jemalloc", USE, "a:100:3000:90 fork:3", {"preload": "jemalloc"}),
    ("3 children under mimalloc", USE, "a:100:3000:90 fork:3", {"preload": "mimalloc"}),
    ("3 children under ebbmalloc", USE, "a:100:3000:90 fork:3", {"preload": "ebbmalloc"}),
    ("4 children, one mapping", OTHER, "mmap:100 fork:4", {}),
]:
    case(f"forked: {name}", label, "held", *program.split(), **options)

# Rights, limits, stopped and short-lived processes
case("another user's, live", USE, "held", "a:200:5000:80", user="nobody")
case("another user's, freed", HELD, "held", "a:200:5000:90", "f:97", user="nobody")
case("another user's, jemalloc, freed", HELD, "held", "a:200:5000:90", "f:97", user="nobody", preload="jemalloc")
case("at its limit, live", USE, "held", "a:200:5000:100", limit_mb=112)
case("at its limit, freed", HELD, "held", "a:200:5000:100", "f:97", limit_mb=112)
case("at its limit, page cache", OTHER, "held", "a:200:5000:10", "file:150:written", limit_mb=120, figures=False)
case("at its limit, files on tmpfs", OTHER, "held", "a:200:5000:10", "shm:90:read", limit_mb=120, figures=False)
case("at its limit, forked and shared", USE, "held", "a:200:5000:90", "fork:4", limit_mb=115)
case("stopped, live", USE, "held", "a:200:5000:80", stopped=True)
case("stopped, freed", HELD, "held", "th:4:200:5000:90:97:stay", stopped=True)
case("stopped while it allocates", USE, "held", "a:200:5000:80", "churn:1", stopped=True, figures=False)
case("ends before it is looked at", UNKNOWN, "held", "a:200:5000:80", "dies:1", settle=0.3)
case("ends during the look", UNKNOWN, "held", "a:48:48:200", "dies:35", also=(USE,), figures=False)

# Python
for version in ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13"):
    for state, label in [("objects", USE), ("objects_pinned", HELD), ("buffers_freed", HELD), ("objects_gone", USE)]:
        if (version, state) == ("3.8", "objects_gone"):
            continue
        case(f"CPython {version}: {state}", label, f"python{version}", state)
for state, label in [("buffers", USE), ("buffers_half", HELD), ("by_threads", HELD), ("strings", USE), ("cycles", USE),
                     ("numbers", USE), ("mapped", OTHER), ("shared", OTHER), ("workers", USE)]:
    case(f"Python: {state}", label, "python3.11", state)
MALLOC = {"PYTHONMALLOC": "malloc"}
for state, label in [("objects", USE), ("objects_pinned", HELD), ("objects_gone", HELD)]:
    case(f"PYTHONMALLOC=malloc: {state}", label, "python3.11", state, env=MALLOC)
for allocator, state, label in [("jemalloc", "objects", USE), ("jemalloc", "buffers_freed", HELD),
                                ("tcmalloc", "buffers_freed", HELD), ("jemalloc", "objects_pinned", HELD)]:
    case(f"Python with {allocator}: {state}", label, "python3.12", state, preload=allocator,
         env=MALLOC if state == "objects" else {})
for state, label, options in [
    ("ndarray", USE, {}), ("small_ndarrays", USE, {}), ("small_ndarrays_freed", HELD, {}), ("frame", USE, {}),
    # Of 224 MB, 57 are mapped files and data of libraries: more than a fifth.
    ("frame_freed", BOTH, {}),
    ("arrow", OTHER, {"figures": False, "also": (USE, UNKNOWN), "unsaid": "another allocator changes none"}),
    ("arrow_system", USE, {"env": {"ARROW_DEFAULT_MEMORY_POOL": "system"}}),
    ("polars_frame", USE, {"figures": False}),
    ("polars_freed", HELD, {"figures": False, "env": {"_RJEM_MALLOC_CONF": "background_thread:false,dirty_decay_ms:-1"}}),
]:
    case(f"data frames: {state}", label, "python-data", state, "120", **options)

# Other runtimes and servers
for state, label in [("objects", OTHER), ("objects_freed", USE), ("buffers", USE), ("small_buffers", USE),
                     ("small_buffers_freed", HELD), ("shared", USE)]:
    also = {"objects_freed": (OTHER,), "shared": (OTHER,), "small_buffers_freed": (BOTH,)}.get(state, ())
    case(f"node: {state}", label, "node", state, figures=False, also=also)
for state, label in [("strings", USE), ("strings_freed", HELD), ("large", USE), ("hashes", USE)]:
    case(f"ruby: {state}", label, "ruby", state, figures=False)
for state in ("live", "garbage", "mapped"):
    case(f"go: {state}", OTHER, "go", state, figures=False)
case("java: heap", OTHER, "java", "heap", figures=False)
case("java: direct buffers", USE, "java", "direct", figures=False)
for state, label in [("table", USE), ("table-drained", HELD), ("channel", HELD), ("vector", USE)]:
    case(f"rust: {state}", label, "rust", state)
for state, label in [("filled", USE), ("thinned", HELD), ("flushed", USE)]:
    case(f"redis: {state}", label, "redis", state, settle=3 if state == "flushed" else 0)
case("memcached, filled", USE, "memcached", "filled", figures=False)
case("nginx with 2 workers", USE, "nginx", "idle", figures=False)
case("postgres, shared buffers filled", OTHER, "postgres", "filled", figures=False)
