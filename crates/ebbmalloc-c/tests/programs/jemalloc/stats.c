/* stats.*: the totals are ordered, follow what is allocated, and are the sums of their parts. */
#include "control.h"

#define BLOCKS 5000

static void ordered(void) {
    size_t allocated = GET(size_t, "stats.allocated"), active = GET(size_t, "stats.active");
    size_t resident = GET(size_t, "stats.resident"), mapped = GET(size_t, "stats.mapped");
    size_t page = GET(size_t, "arenas.page");
    CHECK(allocated > 0 && allocated <= active && active <= resident && resident <= mapped);
    CHECK(active % page == 0 && resident % page == 0 && mapped % page == 0);
    CHECK(GET(size_t, "stats.metadata") > 0);
    CHECK(GET(size_t, "stats.metadata") < resident);
    (void)GET(size_t, "stats.retained");
    (void)GET(size_t, "stats.metadata_thp");
    (void)GET(size_t, "stats.zero_reallocs");
}

static size_t of_all(const char *what) {
    return GET(size_t, named("stats.arenas.%u.%s", MALLCTL_ARENAS_ALL, what));
}

/* The totals are the arenas' sums, an arena's those of its bins and classes. */
static void sums(void) {
    size_t small = of_all("small.allocated"), large = of_all("large.allocated");
    CHECK(small + large == GET(size_t, "stats.allocated"));
    CHECK(of_all("pactive") * GET(size_t, "arenas.page") == GET(size_t, "stats.active"));
    size_t in_bins = 0, in_classes = 0;
    unsigned bins = GET(unsigned, "arenas.nbins"), classes = GET(unsigned, "arenas.nlextents");
    for (unsigned i = 0; i < bins; i++) {
        size_t size = GET(size_t, named("arenas.bin.%u.size", i));
        const char *bin = named("stats.arenas.%u.bins.%u", MALLCTL_ARENAS_ALL, i);
        size_t live = GET(size_t, named("%s.curregs", bin));
        size_t slabs = GET(size_t, named("%s.curslabs", bin));
        size_t nonfull = GET(size_t, named("%s.nonfull_slabs", bin));
        uint32_t regions = GET(uint32_t, named("arenas.bin.%u.nregs", i));
        uint64_t made = GET(uint64_t, named("%s.nmalloc", bin));
        uint64_t freed = GET(uint64_t, named("%s.ndalloc", bin));
        CHECK(made - freed == live && live <= slabs * regions && nonfull <= slabs);
        /* Blocks of caches are with the program as far as bins know. */
        CHECK(GET(uint64_t, named("%s.nslabs", bin)) >= slabs);
        (void)GET(uint64_t, named("%s.nrequests", bin));
        (void)GET(uint64_t, named("%s.nfills", bin));
        (void)GET(uint64_t, named("%s.nflushes", bin));
        (void)GET(uint64_t, named("%s.nreslabs", bin));
        in_bins += live * size;
    }
    CHECK(in_bins == small);
    for (unsigned i = 0; i < classes; i++) {
        size_t size = GET(size_t, named("arenas.lextent.%u.size", i));
        const char *of = named("stats.arenas.%u.lextents.%u", MALLCTL_ARENAS_ALL, i);
        size_t live = GET(size_t, named("%s.curlextents", of));
        CHECK(GET(uint64_t, named("%s.nmalloc", of)) - GET(uint64_t, named("%s.ndalloc", of)) == live);
        in_classes += live * size;
    }
    /* A large block may be smaller than its class. */
    CHECK(in_classes >= large && in_classes - large <= large / 4);
}

static void *idle_thread(void *gate) {
    free(malloc(10));
    pthread_barrier_wait(gate);
    pthread_barrier_wait(gate);
    return NULL;
}

int main(void) {
    require_preload();
    void *kept = malloc(1); /* Or nothing would be allocated once all else is freed. */
    CHECK(kept != NULL);
    refresh();
    ordered();
    sums();
    size_t start = GET(size_t, "stats.allocated");

    static void *held[BLOCKS];
    size_t expected = 0;
    for (int i = 0; i < BLOCKS; i++) {
        held[i] = malloc(i % 10 == 0 ? 40 * KIB : 500);
        memset(held[i], 1, i % 10 == 0 ? 40 * KIB : 500);
        expected += malloc_usable_size(held[i]);
    }
    /* Old until the epoch moves. */
    CHECK(GET(size_t, "stats.allocated") == start);
    refresh();
    ordered();
    sums();
    size_t full = GET(size_t, "stats.allocated");
    /* What lay in the cache counted already. */
    CHECK(full + 256 * KIB >= start + expected && full < start + expected + expected / 10 + MIB);
    for (int i = 0; i < BLOCKS; i++) free(held[i]);
    CALL("thread.tcache.flush");
    refresh();
    ordered();
    sums();
    CHECK(GET(size_t, "stats.allocated") < start + 256 * KIB);

    /* An arena of one's own shows every block. */
    unsigned arena = GET(unsigned, "arenas.create");
    int flags = MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE;
    void *small[100], *large[10];
    size_t small_bytes = 0, large_bytes = 0;
    for (int i = 0; i < 100; i++) small_bytes += sallocx(small[i] = mallocx(100, flags), 0);
    for (int i = 0; i < 10; i++) large_bytes += sallocx(large[i] = mallocx(MIB, flags), 0);
    refresh();
    const char *of = named("stats.arenas.%u", arena);
    CHECK(GET(size_t, named("%s.small.allocated", of)) == small_bytes);
    CHECK(GET(size_t, named("%s.large.allocated", of)) == large_bytes);
    CHECK(GET(uint64_t, named("%s.small.nmalloc", of)) == 100);
    CHECK(GET(uint64_t, named("%s.large.nmalloc", of)) == 10);
    CHECK(GET(size_t, named("%s.pactive", of)) * GET(size_t, "arenas.page") >=
          small_bytes + large_bytes);
    CHECK(GET(size_t, named("%s.mapped", of)) >= small_bytes + large_bytes);
    CHECK(GET(size_t, named("%s.resident", of)) >= small_bytes);
    for (int i = 0; i < 100; i++) dallocx(small[i], MALLOCX_TCACHE_NONE);
    refresh();
    CHECK(GET(size_t, named("%s.small.allocated", of)) == 0);
    CHECK(GET(uint64_t, named("%s.small.ndalloc", of)) == 100);
    CHECK(GET(size_t, named("%s.large.allocated", of)) == large_bytes);
    (void)GET(ssize_t, named("%s.dirty_decay_ms", of));
    (void)GET(const char *, named("%s.dss", of));
    (void)GET(size_t, named("%s.tcache_bytes", of));
    (void)GET(size_t, named("%s.base", of));
    (void)GET(size_t, named("%s.internal", of));
    (void)GET(size_t, named("%s.retained", of));
    CHECK(GET(size_t, named("%s.pmuzzy", of)) * 4096 <= 64 * MIB);

    /* Time and threads. */
    CHECK(GET(uint64_t, named("%s.uptime", of)) < 600000000000u);
    unsigned nthreads = GET(unsigned, named("stats.arenas.%u.nthreads", MALLCTL_ARENAS_ALL));
    pthread_barrier_t gate;
    pthread_barrier_init(&gate, NULL, 4);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, idle_thread, &gate) == 0);
    pthread_barrier_wait(&gate);
    refresh();
    CHECK(GET(unsigned, named("stats.arenas.%u.nthreads", MALLCTL_ARENAS_ALL)) == nthreads + 3);
    pthread_barrier_wait(&gate);
    for (int i = 0; i < 3; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    refresh();
    CHECK(GET(unsigned, named("stats.arenas.%u.nthreads", MALLCTL_ARENAS_ALL)) == nthreads);

    /* The old name of all. */
    CHECK(GET(size_t, named("stats.arenas.%u.pactive", GET(unsigned, "arenas.narenas"))) ==
          of_all("pactive"));
    free(kept);
    return passed();
}
