/* What belongs to a thread: its caches, explicit ones, its counters. */
#include "control.h"

#define CACHES 20

static void explicit_caches(void) {
    unsigned caches[CACHES];
    for (int i = 0; i < CACHES; i++) {
        caches[i] = GET(unsigned, "tcache.create");
        for (int j = 0; j < i; j++) CHECK(caches[i] != caches[j]);
    }
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < CACHES; i++) {
            void *held[50];
            for (int j = 0; j < 50; j++) {
                held[j] = MUST(mallocx(1 + (size_t)j * 90, MALLOCX_TCACHE(caches[i])));
                fill(held[j], 1 + (size_t)j * 90);
            }
            /* One cache may free blocks of another. */
            unsigned other = caches[(i + round) % CACHES];
            for (int j = 0; j < 50; j++) {
                CHECK(holds(held[j], 1 + (size_t)j * 90));
                if (j % 2) dallocx(held[j], MALLOCX_TCACHE(other));
                else sdallocx(held[j], 1 + (size_t)j * 90, MALLOCX_TCACHE(other));
            }
        }
    /* A cache hands its newest block out first. */
    void *block = mallocx(160, MALLOCX_TCACHE(caches[0]));
    dallocx(block, MALLOCX_TCACHE(caches[0]));
    CHECK(mallocx(160, MALLOCX_TCACHE(caches[0])) == block);
    /* rallocx through a cache. */
    block = MUST(rallocx(block, 1000, MALLOCX_TCACHE(caches[1])));
    dallocx(block, MALLOCX_TCACHE(caches[1]));
    for (int i = 0; i < CACHES; i++) SET(unsigned, "tcache.flush", caches[i]);
    /* A flushed cache goes on. */
    block = MUST(mallocx(64, MALLOCX_TCACHE(caches[2])));
    dallocx(block, MALLOCX_TCACHE(caches[2]));
    for (int i = 0; i < CACHES; i++) SET(unsigned, "tcache.destroy", caches[i]);
    /* Its number is free again. */
    unsigned again = GET(unsigned, "tcache.create");
    bool known = false;
    for (int i = 0; i < CACHES; i++) known |= caches[i] == again;
    CHECK(known);
    SET(unsigned, "tcache.destroy", again);
}

/* What was freed into a cache is allocated to the statistics until the cache is flushed: the explicit arena's counts
 * show when it was returned. */
static void a_flush_gives_back(void) {
    unsigned arena = GET(unsigned, "arenas.create"), cache = GET(unsigned, "tcache.create");
    int flags = MALLOCX_ARENA(arena) | MALLOCX_TCACHE(cache);
    void *held[8];
    for (int i = 0; i < 8; i++) held[i] = MUST(mallocx(320, flags));
    for (int i = 0; i < 8; i++) dallocx(held[i], flags);
    SET(unsigned, "tcache.flush", cache);
    refresh();
    CHECK(GET(size_t, named("stats.arenas.%u.small.allocated", arena)) == 0);
    SET(unsigned, "tcache.destroy", cache);
}

static void *own_cache(void *nothing) {
    CHECK(GET(bool, "thread.tcache.enabled"));
    void *block = malloc(100);
    free(block);
    CALL("thread.tcache.flush");
    CHECK(SWAP(bool, "thread.tcache.enabled", false) == true);
    CHECK(!GET(bool, "thread.tcache.enabled"));
    for (size_t size = 1; size < 100 * KIB; size *= 3) {
        block = FILLED(size);
        block = MUST(realloc(block, 2 * size));
        free(block);
    }
    /* There is nothing to flush. */
    CHECK(mallctl("thread.tcache.flush", NULL, NULL, NULL, 0) == EFAULT);
    CHECK(SWAP(bool, "thread.tcache.enabled", true) == false);
    CHECK(GET(bool, "thread.tcache.enabled"));
    block = malloc(100);
    free(block);
    CALL("thread.tcache.flush");
    return nothing;
}

static void misuse(void) {
    unsigned cache = 0;
    size_t length = sizeof cache;
    CHECK(mallctl("tcache.create", &cache, &length, &cache, sizeof cache) == EPERM);
    CHECK(mallctl("tcache.flush", &cache, &length, NULL, 0) == EPERM);
    CHECK(mallctl("tcache.destroy", NULL, NULL, &cache, sizeof cache - 1) == EINVAL);
    CHECK(mallctl("thread.tcache.flush", &cache, &length, NULL, 0) == EPERM);
}

static void caches(void) {
    explicit_caches();
    a_flush_gives_back();
    join(started(own_cache, NULL));
    own_cache(NULL);
    misuse();
    /* The greatest size that caches take. */
    size_t greatest = GET(size_t, "arenas.tcache_max");
    CHECK(greatest >= 4096 && nallocx(greatest, 0) == greatest);
}

/* thread.allocated and its kin: counters of one thread, current at the pointers. */
static void *allocate_elsewhere(void *nothing) {
    uint64_t allocated = GET(uint64_t, "thread.allocated");
    uint64_t *live = GET(uint64_t *, "thread.allocatedp");
    void *block = malloc(100 * KIB);
    CHECK(*live >= allocated + 100 * KIB);
    free(block);
    return nothing;
}

static void allocated(void) {
    uint64_t *allocated = GET(uint64_t *, "thread.allocatedp");
    uint64_t *deallocated = GET(uint64_t *, "thread.deallocatedp");
    CHECK(GET(uint64_t, "thread.allocated") == *allocated);
    CHECK(GET(uint64_t, "thread.deallocated") == *deallocated);
    CHECK(GET(uint64_t *, "thread.allocatedp") == allocated);

    for (size_t size = 1; size <= 4 * MIB; size = size * 3 + 1) {
        uint64_t from = *allocated, freed = *deallocated;
        void *block = malloc(size);
        CHECK(*allocated == from + malloc_usable_size(block) && *deallocated == freed);
        CHECK(GET(uint64_t, "thread.allocated") == *allocated);
        size_t usable = malloc_usable_size(block);
        free(block);
        CHECK(*deallocated == freed + usable && *allocated == from + usable);
        CHECK(GET(uint64_t, "thread.deallocated") == *deallocated);
    }
    /* Every way to allocate and to free counts. */
    uint64_t from = *allocated, freed = *deallocated, expected = 0;
    void *held[8];
    held[0] = calloc(10, 30);
    held[1] = mallocx(700, MALLOCX_ZERO);
    held[2] = aligned_alloc(256, 1000);
    CHECK(posix_memalign(&held[3], 4096, 5000) == 0);
    held[4] = mallocx(9000, MALLOCX_TCACHE_NONE);
    held[5] = mallocx(100, MALLOCX_ALIGN(64));
    for (int i = 0; i < 6; i++) expected += sallocx(held[i], 0);
    CHECK(*allocated == from + expected);
    free(held[0]);
    dallocx(held[1], 0);
    sdallocx(held[2], 1000, MALLOCX_ALIGN(256));
    free(held[3]);
    dallocx(held[4], MALLOCX_TCACHE_NONE);
    free(held[5]);
    CHECK(*deallocated == freed + expected);
    /* What a realloc moves counts on both sides. */
    void *block = malloc(64);
    from = *allocated, freed = *deallocated;
    size_t small = sallocx(block, 0);
    block = realloc(block, 64 * KIB);
    CHECK(*allocated == from + sallocx(block, 0) && *deallocated == freed + small);
    free(block);

    /* Another thread's work is its own. */
    from = *allocated;
    pthread_t thread;
    uint64_t before_thread;
    thread = started(allocate_elsewhere, NULL);
    before_thread = *allocated;
    join(thread);
    CHECK(*allocated - before_thread < 64 * KIB && before_thread - from < 64 * KIB);

    /* The peak of what was not freed yet, from a reset on. */
    CALL("thread.peak.reset");
    block = malloc(3 * MIB);
    free(block);
    uint64_t peak = GET(uint64_t, "thread.peak.read");
    CHECK(peak >= 3 * MIB && peak < 5 * MIB);
    CALL("thread.peak.reset");
    CHECK(GET(uint64_t, "thread.peak.read") < MIB);
    CALL("thread.idle");
}

CASES(CASE(caches), CASE(allocated))
