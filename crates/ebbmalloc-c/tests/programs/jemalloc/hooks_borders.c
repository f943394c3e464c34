/* Extent hooks that keep books: what alloc gave is cut and joined as split and merge say, without a gap, and every
 * other hook names what is in the books. */
#include "control.h"

#define POOL (1024 * MIB)
#define MOST 20000

typedef struct {
    char *start;
    size_t size;
} extent;

static char *pool, *pool_next;
static extent extents[MOST];
static int count;
static unsigned splits, merges, refused_merges;
/* Volatile: the header says that xallocx does not call back into this file. */
static volatile unsigned refused_splits;
static bool joins = true, cuts = true;

/* Index of the extent that starts there, or -1. */
static int at(void *start) {
    for (int i = 0; i < count; i++)
        if (extents[i].start == start) return i;
    return -1;
}

static bool is_whole(void *start, size_t size) {
    int i = at(start);
    return i >= 0 && extents[i].size == size;
}

/* Within one extent, which must be known. */
static bool is_within(char *start, size_t size) {
    for (int i = 0; i < count; i++)
        if (extents[i].start <= start && start + size <= extents[i].start + extents[i].size) return true;
    return false;
}

static void add(char *start, size_t size) {
    CHECK(count < MOST);
    extents[count++] = (extent){start, size};
}

static void take(int i) { extents[i] = extents[--count]; }

static void *hook_alloc(extent_hooks_t *hooks, void *address, size_t size, size_t alignment, bool *zero, bool *commit,
                        unsigned arena) {
    (void)hooks, (void)arena;
    if (address != NULL) return NULL;
    uintptr_t start = ((uintptr_t)pool_next + alignment - 1) & ~(alignment - 1);
    if (start + size > (uintptr_t)pool + POOL) return NULL;
    pool_next = (char *)start + size;
    *zero = *commit = true;
    add((char *)start, size);
    return (void *)start;
}

static bool hook_dalloc(extent_hooks_t *hooks, void *address, size_t size, bool committed, unsigned arena) {
    (void)hooks, (void)committed, (void)arena;
    CHECK(is_whole(address, size));
    CHECK(madvise(address, size, MADV_DONTNEED) == 0);
    take(at(address));
    return false;
}

static void hook_destroy(extent_hooks_t *hooks, void *address, size_t size, bool committed, unsigned arena) {
    hook_dalloc(hooks, address, size, committed, arena);
}

/* A hook on pages of an extent, which returns whether it refuses. */
#define ON_PAGES(name, refuses)                                                                                        \
    static bool hook_##name(extent_hooks_t *hooks, void *address, size_t size, size_t offset, size_t length,           \
                            unsigned arena) {                                                                          \
        (void)hooks, (void)size, (void)arena;                                                                          \
        CHECK(is_within((char *)address + offset, length));                                                            \
        return refuses;                                                                                                \
    }

ON_PAGES(commit, false)
ON_PAGES(decommit, true)
ON_PAGES(purge, madvise((char *)address + offset, length, MADV_DONTNEED) != 0)

static bool hook_split(extent_hooks_t *hooks, void *address, size_t size, size_t first, size_t second, bool committed,
                       unsigned arena) {
    (void)hooks, (void)committed, (void)arena;
    CHECK(first > 0 && second > 0 && first + second == size && is_whole(address, size));
    if (!cuts) {
        refused_splits++;
        return true;
    }
    extents[at(address)].size = first;
    add((char *)address + first, second);
    splits++;
    return false;
}

static bool hook_merge(extent_hooks_t *hooks, void *first, size_t first_size, void *second, size_t second_size,
                       bool committed, unsigned arena) {
    (void)hooks, (void)committed, (void)arena;
    CHECK((char *)first + first_size == second);
    CHECK(is_whole(first, first_size) && is_whole(second, second_size));
    if (!joins) {
        refused_merges++;
        return true;
    }
    take(at(second));
    extents[at(first)].size = first_size + second_size;
    merges++;
    return false;
}

static extent_hooks_t hooks = {hook_alloc, hook_dalloc, hook_destroy, hook_commit, hook_decommit,
                               hook_purge, hook_purge,  hook_split,   hook_merge};

/* Extents tile what alloc has given: none overlaps another. */
static void check_books(void) {
    for (int i = 0; i < count; i++)
        for (int j = 0; j < i; j++)
            CHECK(extents[i].start + extents[i].size <= extents[j].start ||
                  extents[j].start + extents[j].size <= extents[i].start);
}

static void *held[600];
static size_t sizes[600];

/* Allocates, grows, shrinks and frees blocks of all kinds, and leaves the arena purged. */
static void use(unsigned arena, int rounds) {
    int flags = MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE;
    uint64_t random = 7;
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < 600; i++) {
            sizes[i] = mixed_size(&random);
            held[i] = mallocx(sizes[i], flags);
            CHECK(held[i] != NULL && is_within(held[i], sizes[i]));
            fill(held[i], sizes[i]);
        }
        for (int i = 0; i < 600; i += 3) {
            size_t size = i % 2 ? sizes[i] / 2 + 1 : sizes[i] * 3;
            CHECK((held[i] = rallocx(held[i], size, flags)) != NULL);
            CHECK(is_within(held[i], size));
            sizes[i] = size;
            fill(held[i], size);
        }
        for (int i = 0; i < 600; i++) {
            CHECK(holds(held[i], sizes[i]));
            dallocx(held[i], MALLOCX_TCACHE_NONE);
        }
        check_books();
        CALL(named("arena.%u.purge", arena));
    }
}

static unsigned arena_with_hooks(void) {
    unsigned arena;
    size_t length = sizeof arena;
    extent_hooks_t *with = &hooks;
    CHECK(mallctl("arenas.create", &arena, &length, &with, sizeof with) == 0);
    return arena;
}

static void books(void) {
    pool = pool_next = mmap(NULL, POOL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(pool != MAP_FAILED);

    unsigned arena = arena_with_hooks();
    use(arena, 3);
    CHECK(splits > 10 && merges > 10);
    /* What was freed is in one piece again where it came in one: larger than any block that was. */
    CALL(named("arena.%u.reset", arena));
    CALL(named("arena.%u.destroy", arena));
    CHECK(count == 0);

    /* A merge that refuses is obeyed. */
    joins = false;
    merges = 0;
    arena = arena_with_hooks();
    use(arena, 1);
    CHECK(refused_merges > 0 && merges == 0);
    joins = true;
    CALL(named("arena.%u.destroy", arena));

    /* Where a split refuses, a block neither shrinks nor grows into the free range after it. */
    arena = arena_with_hooks();
    int flags = MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE;
    void *block = MUST(mallocx(8 * MIB, flags));
    cuts = false;
    CHECK(xallocx(block, MIB, 0, flags) >= 8 * MIB && refused_splits > 0);
    cuts = true;
    CHECK(xallocx(block, MIB, 0, flags) < 2 * MIB);
    cuts = false;
    refused_splits = 0;
    CHECK(xallocx(block, 3 * MIB, 0, flags) < 2 * MIB && refused_splits > 0);
    cuts = true;
}

CASES(CASE(books))
