/* Extent hooks: an arena whose memory comes from the program, and is returned to it. */
#include "control.h"

static struct {
    unsigned alloc, dalloc, destroy, commit, decommit, purge_lazy, purge_forced, split, merge;
} calls;

/* A pool of the program's own: the arena may not use an address outside. */
#define POOL (512 * MIB)
static char *pool, *pool_next;
/* The table now, and that with which the arena was made: memory for the arena's own records is returned by that
 * one. */
static extent_hooks_t *seen, *first;

static bool is_ours(extent_hooks_t *hooks) { return hooks == seen || hooks == first; }

static bool inside(void *address, size_t size) {
    char *start = address;
    return start >= pool && start + size <= pool + POOL;
}

static void *hook_alloc(extent_hooks_t *hooks, void *address, size_t size, size_t alignment, bool *zero, bool *commit,
                        unsigned arena) {
    (void)arena;
    CHECK(is_ours(hooks));
    CHECK(size > 0 && size % (size_t)sysconf(_SC_PAGESIZE) == 0);
    CHECK((alignment & (alignment - 1)) == 0);
    if (address != NULL) return NULL;
    uintptr_t start = ((uintptr_t)pool_next + alignment - 1) & ~(alignment - 1);
    if (start + size > (uintptr_t)pool + POOL) return NULL;
    pool_next = (char *)start + size;
    *zero = true;
    *commit = true;
    calls.alloc++;
    return (void *)start;
}

static bool hook_dalloc(extent_hooks_t *hooks, void *address, size_t size, bool committed, unsigned arena) {
    (void)committed, (void)arena;
    CHECK(is_ours(hooks) && inside(address, size));
    calls.dalloc++;
    return true; /* It stays the arena's. */
}

static void hook_destroy(extent_hooks_t *hooks, void *address, size_t size, bool committed, unsigned arena) {
    (void)committed, (void)arena;
    CHECK(is_ours(hooks) && inside(address, size));
    CHECK(madvise(address, size, MADV_DONTNEED) == 0);
    calls.destroy++;
}

/* A hook on pages of an extent, which returns whether it refuses. */
#define ON_PAGES(name, refuses)                                                                                        \
    static bool hook_##name(extent_hooks_t *hooks, void *address, size_t size, size_t offset, size_t length,           \
                            unsigned arena) {                                                                          \
        (void)arena;                                                                                                   \
        CHECK(is_ours(hooks) && inside(address, size) && offset + length <= size);                                     \
        calls.name++;                                                                                                  \
        return refuses;                                                                                                \
    }

ON_PAGES(commit, false)
ON_PAGES(decommit, true)
ON_PAGES(purge_lazy, true)
ON_PAGES(purge_forced, madvise((char *)address + offset, length, MADV_DONTNEED) != 0)

static bool hook_split(extent_hooks_t *hooks, void *address, size_t size, size_t first, size_t second, bool committed,
                       unsigned arena) {
    (void)committed, (void)arena;
    CHECK(is_ours(hooks) && inside(address, size) && first + second == size);
    calls.split++;
    return false;
}

static bool hook_merge(extent_hooks_t *hooks, void *first, size_t first_size, void *second, size_t second_size,
                       bool committed, unsigned arena) {
    (void)committed, (void)arena;
    CHECK(is_ours(hooks) && inside(first, first_size) && inside(second, second_size));
    calls.merge++;
    return false;
}

static extent_hooks_t hooks = {hook_alloc,      hook_dalloc,       hook_destroy, hook_commit, hook_decommit,
                               hook_purge_lazy, hook_purge_forced, hook_split,   hook_merge};

static unsigned arena_with(extent_hooks_t *with) {
    unsigned arena;
    size_t length = sizeof arena;
    CHECK(mallctl("arenas.create", &arena, &length, &with, sizeof with) == 0);
    return arena;
}

static void own_pool(void) {
    pool = mmap(NULL, POOL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(pool != MAP_FAILED);
    pool_next = pool;
    seen = first = &hooks;
    unsigned arena = arena_with(&hooks);
    CHECK(GET(extent_hooks_t *, named("arena.%u.extent_hooks", arena)) == &hooks);
    int flags = MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE;

    uint64_t random = 99;
    void *held[400];
    size_t sizes[400];
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 400; i++) {
            sizes[i] = mixed_size(&random);
            held[i] = mallocx(sizes[i], flags | (i % 5 == 0 ? MALLOCX_ZERO : 0));
            CHECK(held[i] != NULL && inside(held[i], sizes[i]));
            if (i % 5 == 0) CHECK(reads_zero(held[i], 0, sizes[i]));
            fill(held[i], sizes[i]);
        }
        for (int i = 0; i < 400; i++) {
            CHECK(holds(held[i], sizes[i]));
            dallocx(held[i], MALLOCX_TCACHE_NONE);
        }
        CALL(named("arena.%u.purge", arena));
    }
    CHECK(calls.alloc > 0);
    /* What was free has gone: by one of the hooks that return memory. */
    CHECK(calls.dalloc + calls.decommit + calls.purge_lazy + calls.purge_forced > 0);
    void *large = mallocx(16 * MIB, flags);
    CHECK(large != NULL && inside(large, 16 * MIB));
    memset(large, 3, 16 * MIB);
    size_t full = resident_bytes();
    dallocx(large, MALLOCX_TCACHE_NONE);
    CALL(named("arena.%u.purge", arena));
    CHECK(resident_bytes() < full - 15 * MIB);

    /* A pool that is empty is memory that cannot be had. */
    char *kept_next = pool_next;
    pool_next = pool + POOL;
    CHECK(mallocx(256 * MIB, flags) == NULL);
    pool_next = kept_next;

    /* The table can be replaced; the old one comes back. */
    static extent_hooks_t others;
    others = hooks;
    CHECK(SWAP(extent_hooks_t *, named("arena.%u.extent_hooks", arena), &others) == &hooks);
    seen = &others;
    void *block = mallocx(5 * MIB, flags);
    CHECK(block != NULL && inside(block, 5 * MIB));
    dallocx(block, MALLOCX_TCACHE_NONE);
    CHECK(GET(extent_hooks_t *, named("arena.%u.extent_hooks", arena)) == &others);

    block = mallocx(MIB, flags);
    memset(block, 1, MIB);
    CALL(named("arena.%u.destroy", arena));
    CHECK(calls.destroy + calls.dalloc > 0);
    CHECK(munmap(pool, POOL) == 0);

    /* Other arenas have their own, which can be called. */
    extent_hooks_t *defaults = GET(extent_hooks_t *, "arena.0.extent_hooks");
    CHECK(defaults != NULL && defaults != &hooks && defaults->alloc != NULL);
}

static extent_hooks_t *defaults;
static size_t mapped;
static unsigned allocs;

static void *counting_alloc(extent_hooks_t *hooks, void *address, size_t size, size_t alignment, bool *zero,
                            bool *commit, unsigned arena) {
    (void)hooks;
    void *got = defaults->alloc(defaults, address, size, alignment, zero, commit, arena);
    if (got != NULL) {
        mapped += size;
        allocs++;
        CHECK(is_aligned(got, alignment));
        if (*zero) CHECK(reads_zero(got, 0, *commit ? 4096 : 0));
    }
    return got;
}

static void default_ones(void) {
    unsigned arena = GET(unsigned, "arenas.create");
    defaults = GET(extent_hooks_t *, named("arena.%u.extent_hooks", arena));
    CHECK(defaults != NULL && defaults->alloc != NULL);
    static extent_hooks_t hooks;
    hooks = *defaults;
    hooks.alloc = counting_alloc;
    CHECK(SWAP(extent_hooks_t *, named("arena.%u.extent_hooks", arena), &hooks) == defaults);
    int flags = MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE;
    uint64_t random = 5;
    for (int round = 0; round < 3; round++) {
        void *held[200];
        size_t sizes[200], sum = 0;
        for (int i = 0; i < 200; i++) {
            sizes[i] = mixed_size(&random) + (i == 0 ? 24 * MIB : 0);
            sum += sizes[i];
            held[i] = MUST(mallocx(sizes[i], flags));
            fill(held[i], sizes[i]);
        }
        CHECK(allocs > 0 && mapped >= sum);
        for (int i = 0; i < 200; i++) {
            CHECK(holds(held[i], sizes[i]));
            dallocx(held[i], MALLOCX_TCACHE_NONE);
        }
        CALL(named("arena.%u.purge", arena));
    }
    CALL(named("arena.%u.destroy", arena));
}

#define THREADS 4

static unsigned entered;

static void use_heap(void) {
    __atomic_fetch_add(&entered, 1, __ATOMIC_RELAXED);
    void *held[20];
    for (int i = 0; i < 20; i++) {
        size_t size = 1 + (size_t)i * i * 300;
        held[i] = FILLED(size);
    }
    for (int i = 0; i < 20; i++) RELEASE(held[i], 1 + (size_t)i * i * 300);
}

static void *busy_alloc(extent_hooks_t *hooks, void *address, size_t size, size_t alignment, bool *zero, bool *commit,
                        unsigned arena) {
    (void)hooks;
    use_heap();
    return defaults->alloc(defaults, address, size, alignment, zero, commit, arena);
}

static bool busy_dalloc(extent_hooks_t *hooks, void *address, size_t size, bool committed, unsigned arena) {
    (void)hooks;
    use_heap();
    return defaults->dalloc(defaults, address, size, committed, arena);
}

static bool busy_purge(extent_hooks_t *hooks, void *address, size_t size, size_t offset, size_t length,
                       unsigned arena) {
    (void)hooks;
    use_heap();
    return defaults->purge_forced(defaults, address, size, offset, length, arena);
}

static unsigned arena;

static void *worker(void *seed) {
    uint64_t random = (uint64_t)(uintptr_t)seed * 31 + 7;
    int flags = MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE;
    void *held[100] = {0};
    size_t sizes[100];
    for (int step = 0; step < 6000; step++) {
        unsigned slot = next_random(&random) % 100;
        if (held[slot] != NULL) {
            CHECK(holds(held[slot], sizes[slot]));
            dallocx(held[slot], MALLOCX_TCACHE_NONE);
            held[slot] = NULL;
        } else {
            sizes[slot] = mixed_size(&random);
            held[slot] = MUST(mallocx(sizes[slot], step % 2 ? flags : 0));
            fill(held[slot], sizes[slot]);
        }
        if (step % 1000 == 999) CALL(named("arena.%u.purge", arena));
    }
    for (int i = 0; i < 100; i++) free(held[i]);
    CALL("thread.tcache.flush");
    return NULL;
}

static void that_allocate(void) {
    arena = GET(unsigned, "arenas.create");
    defaults = GET(extent_hooks_t *, named("arena.%u.extent_hooks", arena));
    static extent_hooks_t hooks;
    hooks = *defaults;
    hooks.alloc = busy_alloc;
    hooks.dalloc = busy_dalloc;
    hooks.purge_forced = busy_purge;
    extent_hooks_t *ours = &hooks;
    CHECK(mallctl(named("arena.%u.extent_hooks", arena), NULL, NULL, &ours, sizeof ours) == 0);
    run_threads(THREADS, worker);
    CHECK(entered > 0);
    CALL("thread.tcache.flush");
    CALL(named("arena.%u.destroy", arena));
}

CASES(CASE(own_pool), CASE(default_ones), CASE(that_allocate))
