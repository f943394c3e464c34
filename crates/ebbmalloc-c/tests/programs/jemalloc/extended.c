/* mallocx and its kin, blocks in batches, and how full the slab of a block is. */
#include "control.h"

static void made(void) {
    soil();
    for (int lg = 0; lg <= 22; lg++)
        for (size_t size = 1; size <= 2 * MIB; size += 1 + size / 2)
            for (int zero = 0; zero <= MALLOCX_ZERO; zero += MALLOCX_ZERO) {
                int flags = MALLOCX_LG_ALIGN(lg) | zero;
                CHECK((MALLOCX_ALIGN((size_t)1 << lg) | zero) == flags);
                unsigned char *block = mallocx(size, flags);
                CHECK(block != NULL && is_aligned(block, (size_t)1 << lg));
                CHECK(sallocx(block, flags) == nallocx(size, flags));
                CHECK(sallocx(block, flags) == malloc_usable_size(block));
                if (zero) CHECK(reads_zero(block, 0, size));
                memset(block, 0x5a, sallocx(block, flags));
                dallocx(block, 0);
            }
    /* Without a cache: straight from the arena, the same block otherwise. */
    for (size_t size = 1; size <= MIB; size = size * 3 + 1) {
        unsigned char *block = mallocx(size, MALLOCX_TCACHE_NONE | MALLOCX_ZERO);
        CHECK(block != NULL && reads_zero(block, 0, size));
        memset(block, 0x33, size);
        dallocx(block, MALLOCX_TCACHE_NONE);
    }
    /* From an arena of the automatic ones. */
    unsigned arena = GET(unsigned, "thread.arena");
    unsigned char *block = mallocx(1000, MALLOCX_ARENA(arena) | MALLOCX_ZERO);
    CHECK(block != NULL && reads_zero(block, 0, 1000));
    dallocx(block, 0);
}

static void grows_and_shrinks(int flags) {
    size_t alignment = (size_t)1 << (flags & 63);
    for (size_t size = 1; size < 3 * MIB; size = size * 2 + 5) {
        unsigned char *block = MUST(mallocx(size, flags));
        size_t usable = sallocx(block, 0);
        memset(block, 0x42, usable);
        block = rallocx(block, size * 3 + 70, flags);
        CHECK(block != NULL && is_aligned(block, alignment) && sallocx(block, 0) >= size * 3 + 70);
        for (size_t i = 0; i < size; i++) CHECK(block[i] == 0x42);
        if (flags & MALLOCX_ZERO) CHECK(reads_zero(block, usable, size * 3 + 70));
        block = rallocx(block, size / 2 + 1, flags);
        CHECK(block != NULL && is_aligned(block, alignment));
        for (size_t i = 0; i < size / 2; i++) CHECK(block[i] == 0x42);
        dallocx(block, flags & ~MALLOCX_ZERO);
    }
}

/* An alignment that the block has not got yet. */
static void aligns_later(void) {
    for (int lg = 4; lg <= 21; lg++) {
        unsigned char *block = mallocx(100, 0);
        memset(block, 0x11, 100);
        block = rallocx(block, 200, MALLOCX_LG_ALIGN(lg));
        CHECK(block != NULL && is_aligned(block, (size_t)1 << lg));
        for (int i = 0; i < 100; i++) CHECK(block[i] == 0x11);
        dallocx(block, 0);
    }
}

static void refuses(void) {
    unsigned char *block = mallocx(4000, 0);
    memset(block, 0x22, 4000);
    CHECK(rallocx(block, SIZE_MAX, 0) == NULL);
    CHECK(rallocx(block, (size_t)1 << 63, MALLOCX_ZERO) == NULL);
    CHECK(rallocx(block, SIZE_MAX - 100, MALLOCX_ALIGN(4096)) == NULL);
    for (int i = 0; i < 4000; i++) CHECK(block[i] == 0x22);
    dallocx(block, 0);
}

static void resized(void) {
    soil();
    grows_and_shrinks(0);
    grows_and_shrinks(MALLOCX_ZERO);
    grows_and_shrinks(MALLOCX_ALIGN(128));
    grows_and_shrinks(MALLOCX_ALIGN(8192) | MALLOCX_ZERO);
    grows_and_shrinks(MALLOCX_TCACHE_NONE);
    aligns_later();
    refuses();
}

static void sized(void) {
    soil();
    size_t before = 0;
    for (size_t size = 1; size <= 4 * MIB; size += 1 + size / 64) {
        size_t promised = nallocx(size, 0);
        /* Size classes: never less than asked for, monotonic, fixed points of themselves. */
        CHECK(promised >= size && promised >= before && nallocx(promised, 0) == promised);
        /* At most a quarter is lost above the smallest classes. */
        if (size >= 128) CHECK(promised - size <= size / 4);
        before = promised;
        void *block = malloc(size);
        CHECK(sallocx(block, 0) == promised && malloc_usable_size(block) == promised);
        sdallocx(block, size, 0);
        block = malloc(size);
        sdallocx(block, promised, 0);
        block = mallocx(size, MALLOCX_ALIGN(512));
        CHECK(sallocx(block, MALLOCX_ALIGN(512)) == nallocx(size, MALLOCX_ALIGN(512)));
        sdallocx(block, size, MALLOCX_ALIGN(512));
        block = mallocx(size, MALLOCX_TCACHE_NONE);
        sdallocx(block, size, MALLOCX_TCACHE_NONE);
    }
    /* What cannot be is promised as 0. */
    CHECK(nallocx(SIZE_MAX, 0) == 0);
    CHECK(nallocx((size_t)1 << 63, 0) == 0);
    CHECK(nallocx((size_t)1 << 63, MALLOCX_ALIGN(4096)) == 0);
    CHECK(nallocx(1, MALLOCX_LG_ALIGN(63)) == 0);
    CHECK(nallocx(SIZE_MAX - 10, MALLOCX_LG_ALIGN(20)) == 0);
}

static void small_blocks_stay(void) {
    for (size_t size = 1; size <= 2048; size = size * 2 + 1) {
        unsigned char *block = mallocx(size, 0);
        size_t usable = sallocx(block, 0);
        memset(block, 0x61, usable);
        CHECK(xallocx(block, size, 0, 0) == usable);
        CHECK(xallocx(block, usable, 0, 0) == usable);
        CHECK(xallocx(block, 1, 0, 0) == usable || size > 8);
        /* It cannot grow where it is. */
        CHECK(xallocx(block, usable * 8, 0, 0) == usable);
        CHECK(xallocx(block, usable + 1, usable * 8, 0) == usable);
        CHECK(sallocx(block, 0) == usable);
        for (size_t i = 0; i < usable; i++) CHECK(block[i] == 0x61);
        dallocx(block, 0);
    }
}

static void large_blocks_shrink_and_grow_back(void) {
    unsigned char *block = MUST(mallocx(8 * MIB, 0));
    memset(block, 0x62, 8 * MIB);
    size_t shrunk = xallocx(block, 4 * MIB, 0, 0);
    CHECK(shrunk >= 4 * MIB && shrunk < 8 * MIB && shrunk == sallocx(block, 0));
    for (size_t i = 0; i < 4 * MIB; i += 512) CHECK(block[i] == 0x62);
    /* Growth may find its place taken: then the size stays. New bytes are zero when asked for. */
    size_t grown = xallocx(block, 6 * MIB, 0, MALLOCX_ZERO);
    CHECK(grown == sallocx(block, 0) && (grown == shrunk || grown >= 6 * MIB));
    CHECK(reads_zero(block, shrunk, grown));
    for (size_t i = 0; i < 4 * MIB; i += 512) CHECK(block[i] == 0x62);
    dallocx(block, 0);
}

static void extra_is_a_wish(void) {
    void *block = mallocx(2 * MIB, 0);
    size_t usable = sallocx(block, 0);
    size_t got = xallocx(block, 2 * MIB, 2 * MIB, 0);
    CHECK(got >= usable && got <= nallocx(4 * MIB, 0) && got == sallocx(block, 0));
    /* size + extra may not be representable: it is cut, the call stays harmless. */
    got = xallocx(block, usable, SIZE_MAX - usable, 0);
    CHECK(got >= usable && got == sallocx(block, 0));
    CHECK(xallocx(block, SIZE_MAX, 0, 0) == got);
    CHECK(xallocx(block, (size_t)1 << 63, SIZE_MAX >> 1, 0) == got);
    dallocx(block, 0);
}

static void resized_in_place(void) {
    soil();
    small_blocks_stay();
    large_blocks_shrink_and_grow_back();
    extra_is_a_wish();
}

/* Many blocks of one size by one call. */
struct batch {
    void **blocks;
    size_t count, size;
    int flags;
};

static size_t take_batch(struct batch *batch) {
    size_t filled, length = sizeof filled;
    CHECK(mallctl("experimental.batch_alloc", &filled, &length, batch, sizeof *batch) == 0);
    CHECK(filled <= batch->count);
    return filled;
}

static void batches(void) {
    static void *blocks[3000];
    for (size_t size = 8; size <= 8192; size *= 4)
        for (int zero = 0; zero <= MALLOCX_ZERO; zero += MALLOCX_ZERO) {
            struct batch batch = {blocks, 3000, size, zero};
            size_t filled = take_batch(&batch);
            CHECK(filled == 3000);
            for (size_t i = 0; i < filled; i++) {
                CHECK(malloc_usable_size(blocks[i]) >= size);
                if (zero) CHECK(reads_zero(blocks[i], 0, size));
                fill(blocks[i], size);
            }
            for (size_t i = 0; i < filled; i++) RELEASE(blocks[i], size);
        }
    struct batch batch = {blocks, 10, 100, MALLOCX_ALIGN(4096)};
    CHECK(take_batch(&batch) == 10);
    for (int i = 0; i < 10; i++) {
        CHECK(is_aligned(blocks[i], 4096));
        free(blocks[i]);
    }
    size_t filled, length = sizeof filled;
    CHECK(mallctl("experimental.batch_alloc", &filled, &length, &batch, 3) == EINVAL);
}

/* What a program that defragments itself asks about its blocks. */
struct verbose {
    void *slabcur;
    size_t nfree, nregs, size, bin_nfree, bin_nregs;
};

struct brief {
    size_t nfree, nregs, size;
};

static void utilization(void) {
    void *small[3], *large = malloc(MIB);
    for (int i = 0; i < 3; i++) small[i] = malloc(100);
    unsigned bins = GET(unsigned, "arenas.nbins");
    unsigned bin = 0;
    while (bin < bins && GET(size_t, named("arenas.bin.%u.size", bin)) < 100) bin++;
    uint32_t regions = GET(uint32_t, named("arenas.bin.%u.nregs", bin));

    struct verbose of_one;
    size_t length = sizeof of_one;
    CHECK(mallctl("experimental.utilization.query", &of_one, &length, &small[0], sizeof(void *)) == 0);
    CHECK(of_one.nregs == regions && of_one.nfree < regions);
    CHECK(of_one.size == GET(size_t, named("arenas.bin.%u.slab_size", bin)));
    CHECK(of_one.bin_nregs >= of_one.nregs && of_one.bin_nfree >= of_one.nfree);
    CHECK(mallctl("experimental.utilization.query", &of_one, &length, &large, sizeof(void *)) == 0);
    CHECK(of_one.nregs == 1 && of_one.nfree == 0 && of_one.size >= MIB);

    void *asked[4] = {small[0], small[1], small[2], large};
    struct brief of_all[4];
    length = sizeof of_all;
    CHECK(mallctl("experimental.utilization.batch_query", of_all, &length, asked, sizeof asked) == 0);
    for (int i = 0; i < 3; i++) CHECK(of_all[i].nregs == regions && of_all[i].nfree < regions);
    CHECK(of_all[3].nregs == 1 && of_all[3].size >= MIB);
    length = sizeof of_all - 1;
    CHECK(mallctl("experimental.utilization.batch_query", of_all, &length, asked, sizeof asked) == EINVAL);
    for (int i = 0; i < 3; i++) free(small[i]);
    free(large);
}

/* What a database does that defragments itself: it asks how full the slab of each value is, moves the values of sparse
 * slabs by new blocks, which come from fuller ones, and its memory shrinks. */
#define VALUES 150000
#define VALUE_BYTES 240

struct utilization {
    void *current;
    size_t nfree, nregs, size, bin_nfree, bin_nregs;
};

static unsigned char *value[VALUES];
static size_t query[8], query_length = 8;

/* Whether this value lies in a slab that is emptier than the bin's mean. */
static bool is_sparse(void *block) {
    struct utilization found;
    size_t length = sizeof found;
    CHECK(mallctlbymib(query, query_length, &found, &length, &block, sizeof block) == 0);
    char *current = found.current;
    if ((char *)block >= current && (char *)block < current + found.size) return false;
    double here = 1 - (double)found.nfree / (double)found.nregs;
    double mean = 1 - (double)found.bin_nfree / (double)found.bin_nregs;
    return found.nfree > 0 && here <= mean * 1.125;
}

static void defragment(void) {
    CHECK(mallctlnametomib("experimental.utilization.query", query, &query_length) == 0);
    size_t empty = resident_bytes();
    for (int i = 0; i < VALUES; i++) value[i] = FILLED(VALUE_BYTES);
    size_t full = resident_bytes() - empty;
    CHECK(full >= VALUES * (size_t)VALUE_BYTES);
    /* One in twelve stays, so that there is something on nearly every page. */
    uint64_t random = 7;
    size_t left = 0;
    for (int i = 0; i < VALUES; i++) {
        if (next_random(&random) % 12 == 0) {
            left++;
            continue;
        }
        free(value[i]);
        value[i] = NULL;
    }
    CALL("thread.tcache.flush");
    CALL(named("arena.%u.purge", MALLCTL_ARENAS_ALL));
    size_t sparse = resident_bytes() - empty;
    unsigned moved = 1, passes = 0;
    for (; moved > 0 && passes < 30; passes++) {
        moved = 0;
        for (int i = 0; i < VALUES; i++) {
            if (value[i] == NULL || !is_sparse(value[i])) continue;
            CHECK(holds(value[i], VALUE_BYTES));
            unsigned char *to = MUST(mallocx(VALUE_BYTES, MALLOCX_TCACHE_NONE));
            fill(to, VALUE_BYTES);
            dallocx(value[i], MALLOCX_TCACHE_NONE);
            value[i] = to;
            moved++;
        }
        CALL(named("arena.%u.purge", MALLCTL_ARENAS_ALL));
    }
    size_t dense = resident_bytes() - empty;
    dprintf(2, "KiB resident: full %zu, a twelfth %zu, defragmented in %u passes %zu, live %zu\n", full / KIB,
            sparse / KIB, passes, dense / KIB, left * VALUE_BYTES / KIB);
    CHECK(dense < sparse / 2 && dense < full / 5);
    for (int i = 0; i < VALUES; i++) {
        if (value[i] == NULL) continue;
        RELEASE(value[i], VALUE_BYTES);
    }
}

CASES(CASE(made), CASE(resized), CASE(sized), CASE(resized_in_place), CASE(batches), CASE(utilization),
      CASE(defragment))
