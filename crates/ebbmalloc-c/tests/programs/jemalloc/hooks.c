/* Extent hooks: an arena whose memory comes from the program, and goes back to it. */
#include "control.h"

static struct {
    unsigned alloc, dalloc, destroy, commit, decommit, purge_lazy, purge_forced, split, merge;
} calls;

/* A pool of the program's own: the arena may not use an address outside. */
#define POOL (512 * MIB)
static char *pool, *pool_next;
/* The table now, and that with which the arena was made: what the arena got for its own records
 * goes back by that one. */
static extent_hooks_t *seen, *first;

static bool is_ours(extent_hooks_t *hooks) { return hooks == seen || hooks == first; }

static bool inside(void *address, size_t size) {
    char *start = address;
    return start >= pool && start + size <= pool + POOL;
}

static void *hook_alloc(extent_hooks_t *hooks, void *address, size_t size, size_t alignment,
                        bool *zero, bool *commit, unsigned arena) {
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

static bool hook_dalloc(extent_hooks_t *hooks, void *address, size_t size, bool committed,
                        unsigned arena) {
    (void)committed, (void)arena;
    CHECK(is_ours(hooks) && inside(address, size));
    calls.dalloc++;
    return true; /* It stays the arena's. */
}

static void hook_destroy(extent_hooks_t *hooks, void *address, size_t size, bool committed,
                         unsigned arena) {
    (void)committed, (void)arena;
    CHECK(is_ours(hooks) && inside(address, size));
    CHECK(madvise(address, size, MADV_DONTNEED) == 0);
    calls.destroy++;
}

static bool hook_commit(extent_hooks_t *hooks, void *address, size_t size, size_t offset,
                        size_t length, unsigned arena) {
    (void)arena;
    CHECK(is_ours(hooks) && inside(address, size) && offset + length <= size);
    calls.commit++;
    return false;
}

static bool hook_decommit(extent_hooks_t *hooks, void *address, size_t size, size_t offset,
                          size_t length, unsigned arena) {
    (void)arena;
    CHECK(is_ours(hooks) && inside(address, size) && offset + length <= size);
    calls.decommit++;
    return true; /* Not here. */
}

static bool hook_purge_lazy(extent_hooks_t *hooks, void *address, size_t size, size_t offset,
                            size_t length, unsigned arena) {
    (void)arena;
    CHECK(is_ours(hooks) && inside(address, size) && offset + length <= size);
    calls.purge_lazy++;
    return true;
}

static bool hook_purge_forced(extent_hooks_t *hooks, void *address, size_t size, size_t offset,
                              size_t length, unsigned arena) {
    (void)arena;
    CHECK(is_ours(hooks) && inside(address, size) && offset + length <= size);
    calls.purge_forced++;
    return madvise((char *)address + offset, length, MADV_DONTNEED) != 0;
}

static bool hook_split(extent_hooks_t *hooks, void *address, size_t size, size_t first,
                       size_t second, bool committed, unsigned arena) {
    (void)committed, (void)arena;
    CHECK(is_ours(hooks) && inside(address, size) && first + second == size);
    calls.split++;
    return false;
}

static bool hook_merge(extent_hooks_t *hooks, void *first, size_t first_size, void *second,
                       size_t second_size, bool committed, unsigned arena) {
    (void)committed, (void)arena;
    CHECK(is_ours(hooks) && inside(first, first_size) && inside(second, second_size));
    calls.merge++;
    return false;
}

static extent_hooks_t hooks = {hook_alloc,      hook_dalloc,     hook_destroy,
                               hook_commit,     hook_decommit,   hook_purge_lazy,
                               hook_purge_forced, hook_split,    hook_merge};

static unsigned arena_with(extent_hooks_t *with) {
    unsigned arena;
    size_t length = sizeof arena;
    CHECK(mallctl("arenas.create", &arena, &length, &with, sizeof with) == 0);
    return arena;
}

int main(void) {
    require_preload();
    pool = mmap(NULL, POOL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                0);
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
    return passed();
}
