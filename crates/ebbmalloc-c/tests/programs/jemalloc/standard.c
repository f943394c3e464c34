/* The functions of the C standard and of POSIX, as jemalloc defines their edges. */
#include "control.h"

static void edges(void) {
    soil();
    /* No bytes: a block of its own each time, which can be freed. */
    void *first = malloc(0), *second = malloc(0), *third = calloc(0, 8), *fourth = calloc(8, 0);
    CHECK(first != NULL && second != NULL && third != NULL && fourth != NULL);
    CHECK(first != second && third != fourth);
    free(first), free(second), free(third), free(fourth);
    free(NULL);
    CHECK(malloc_usable_size(NULL) == 0);

    for (size_t size = 1; size < 6 * MIB; size = size * 2 + 1) {
        unsigned char *block = calloc(1, size);
        CHECK(block != NULL && reads_zero(block, 0, size) && is_aligned(block, size < 16 ? 8 : 16));
        fill(block, size);
        /* All that is usable may be written, and the next calloc is not allowed to show it. */
        memset(block, 0x77, malloc_usable_size(block));
        free(block);
        block = calloc(size, 1);
        CHECK(block != NULL && reads_zero(block, 0, size));
        fill(block, size);
        block = MUST(realloc(block, 2 * size + 9));
        CHECK(malloc_usable_size(block) >= 2 * size + 9);
        free(block);
    }
    /* Contents survive growth and shrinking. */
    for (size_t size = 16; size < 2 * MIB; size *= 3) {
        unsigned char *block = malloc(size);
        for (size_t i = 0; i < size; i++) block[i] = (unsigned char)(i * 7 + i / 251);
        block = MUST(realloc(block, size * 2));
        for (size_t i = 0; i < size; i++) CHECK(block[i] == (unsigned char)(i * 7 + i / 251));
        block = MUST(realloc(block, size / 2));
        for (size_t i = 0; i < size / 2; i++) CHECK(block[i] == (unsigned char)(i * 7 + i / 251));
        free(block);
    }
    void *block = realloc(NULL, 100);
    CHECK(block != NULL && malloc_usable_size(block) >= 100);
    free(block);
}

static void aligned_powers_of_two(void) {
    for (size_t alignment = 1; alignment <= 4 * MIB; alignment *= 2)
        for (size_t size = 1; size <= 2 * MIB; size = size * 3 + 1) {
            void *held[4];
            for (int i = 0; i < 4; i++) {
                held[i] = aligned_alloc(alignment, size);
                CHECK(held[i] != NULL && is_aligned(held[i], alignment));
                CHECK(malloc_usable_size(held[i]) >= size);
                fill(held[i], size);
            }
            for (int i = 0; i < 4; i++) RELEASE(held[i], size);
        }
}

static void bad_alignments(void) {
    static const size_t bad[] = {0, 3, 24, 4097, ((size_t)1 << 63) + 1, SIZE_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        volatile size_t alignment = bad[i];
        REFUSED(aligned_alloc(alignment, 64), EINVAL);
    }
}

static void too_much(void) {
    volatile size_t half = (size_t)1 << 63;
    REFUSED(aligned_alloc(half, 1), ENOMEM);
    REFUSED(aligned_alloc(half, half), ENOMEM);
    REFUSED(aligned_alloc(16, SIZE_MAX - 8), ENOMEM);
}

static void no_bytes(void) {
    void *first = aligned_alloc(4096, 0), *second = aligned_alloc(4096, 0);
    CHECK(first != NULL && second != NULL && first != second);
    CHECK(is_aligned(first, 4096) && is_aligned(second, 4096));
    free(first);
    free(second);
}

static void aligned(void) {
    aligned_powers_of_two();
    bad_alignments();
    too_much();
    no_bytes();
    void *block = memalign(256, 100);
    CHECK(block != NULL && is_aligned(block, 256));
    free(block);
    block = valloc(100);
    CHECK(block != NULL && is_aligned(block, (size_t)sysconf(_SC_PAGESIZE)));
    free(block);
}

static void posix_aligned(void) {
    void *const mark = (void *)(uintptr_t)0x5a5a;
    for (size_t alignment = sizeof(void *); alignment <= 8 * MIB; alignment *= 2)
        for (size_t size = 1; size <= MIB; size = size * 5 + 2) {
            void *block = mark;
            CHECK(posix_memalign(&block, alignment, size) == 0);
            CHECK(block != NULL && block != mark && is_aligned(block, alignment));
            CHECK(malloc_usable_size(block) >= size);
            fill(block, size);
            /* It may be resized like any other. */
            void *grown = realloc(block, size + 300);
            CHECK(grown != NULL && grown != mark);
            CHECK(malloc_usable_size(grown) >= size + 300);
            free(grown);
        }
    static const size_t bad[] = {0, 1, 2, sizeof(void *) / 2, 3 * sizeof(void *), SIZE_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        volatile size_t alignment = bad[i];
        void *block = mark;
        errno = 77;
        CHECK(posix_memalign(&block, alignment, 8) == EINVAL);
        CHECK(block == mark && errno == 77);
    }
    volatile size_t half = (size_t)1 << 63;
    const size_t pairs[][2] = {{half, 1}, {half, half}, {64, SIZE_MAX}, {4096, SIZE_MAX - 4095}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        void *block = mark;
        CHECK(posix_memalign(&block, pairs[i][0], pairs[i][1]) == ENOMEM && block == mark);
    }
    void *block = mark;
    CHECK(posix_memalign(&block, 64, 0) == 0 && block != NULL && is_aligned(block, 64));
    free(block);
}

static void too_large(void) {
    /* The last lextent class is the greatest size there is. */
    unsigned classes = GET(unsigned, "arenas.nlextents");
    CHECK(classes > 0);
    size_t greatest = GET(size_t, named("arenas.lextent.%u.size", classes - 1));
    CHECK(greatest > MIB && greatest < SIZE_MAX);
    const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 4096, PTRDIFF_MAX, (size_t)PTRDIFF_MAX + 1, greatest + 1};
    unsigned char *held = malloc(500);
    memset(held, 0x13, 500);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        volatile size_t size = sizes[i];
        void *block = NULL;
        REFUSED(malloc(size), ENOMEM);
        REFUSED(calloc(1, size), ENOMEM);
        CHECK(realloc(held, size) == NULL);
        REFUSED(realloc(NULL, size), ENOMEM);
        REFUSED(aligned_alloc(64, size), ENOMEM);
        CHECK(memalign(64, size) == NULL);
        CHECK(posix_memalign(&block, 64, size) == ENOMEM && block == NULL);
        CHECK(mallocx(size, 0) == NULL);
        CHECK(rallocx(held, size, 0) == NULL);
        CHECK(xallocx(held, size, 0, 0) == sallocx(held, 0));
        for (int byte = 0; byte < 500; byte++) CHECK(held[byte] == 0x13);
    }
    /* Products that wrap around. */
    volatile size_t half = (size_t)1 << 32;
    REFUSED(calloc(half, half), ENOMEM);
    CHECK(calloc(half, half + 1) == NULL && calloc(half + 1, half) == NULL);
    CHECK(calloc(SIZE_MAX, 2) == NULL && calloc(2, SIZE_MAX) == NULL);
    /* The greatest class itself is a request like any other: no memory, no harm. */
    errno = 0;
    void *block = malloc(greatest);
    CHECK(block != NULL || errno == ENOMEM);
    free(block);
    free(held);
}

static void size_classes(void) {
    unsigned bins = GET(unsigned, "arenas.nbins"), classes = GET(unsigned, "arenas.nlextents");
    size_t page = GET(size_t, "arenas.page"), before = 0;
    CHECK(bins > 10 && classes > 10);
    for (unsigned i = 0; i < bins; i++) {
        size_t size = GET(size_t, named("arenas.bin.%u.size", i));
        size_t slab = GET(size_t, named("arenas.bin.%u.slab_size", i));
        uint32_t regions = GET(uint32_t, named("arenas.bin.%u.nregs", i));
        CHECK(size > before && slab % page == 0 && regions >= 1 && regions * size <= slab);
        CHECK(GET(uint32_t, named("arenas.bin.%u.nshards", i)) >= 1);
        /* Everything between two classes has the upper one. */
        CHECK(nallocx(size, 0) == size && nallocx(before + 1, 0) == size);
        void *block = malloc(size);
        CHECK(malloc_usable_size(block) == size);
        free(block);
        before = size;
    }
    for (unsigned i = 0; i < classes; i++) {
        size_t size = GET(size_t, named("arenas.lextent.%u.size", i));
        CHECK(size > before && size % page == 0);
        if (size < 64 * MIB) CHECK(nallocx(size, 0) == size);
        before = size;
    }
    CHECK(before >= (size_t)1 << 40);
}

/* Junk and zeros by settings, in what is handed out and in what was freed. */
static bool all(const unsigned char *block, unsigned char byte, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (block[i] != byte) return false;
    return true;
}

static void filled_by_settings(void) {
    const char *junk = GET(const char *, "opt.junk");
    bool zero = GET(bool, "opt.zero");
    bool on_alloc = strcmp(junk, "true") == 0 || strcmp(junk, "alloc") == 0;
    bool on_free = strcmp(junk, "true") == 0 || strcmp(junk, "free") == 0;
    CHECK(zero || on_alloc || on_free);
    for (size_t size = 8; size <= 2 * MIB; size = size * 2 + 8) {
        for (int round = 0; round < 3; round++) {
            volatile unsigned char *dirty = malloc(size);
            for (size_t i = 0; i < size; i++) dirty[i] = 0x77;
            free((void *)dirty);
        }
        unsigned char *blocks[] = {malloc(size), aligned_alloc(64, size), mallocx(size, 0),
                                   mallocx(size, MALLOCX_TCACHE_NONE)};
        for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
            CHECK(blocks[i] != NULL);
            if (zero) CHECK(all(blocks[i], 0, size));
            else if (on_alloc) CHECK(all(blocks[i], 0xa5, size));
            free(blocks[i]);
        }
        /* Zeros that are asked for win. */
        unsigned char *block = calloc(1, size);
        CHECK(all(block, 0, size));
        free(block);
        /* Growth: the old bytes stay, the new ones are filled. */
        block = malloc(size);
        memset(block, 0x31, size);
        size_t usable = malloc_usable_size(block);
        memset(block, 0x31, usable);
        block = realloc(block, 3 * size + 100);
        CHECK(all(block, 0x31, size));
        if (zero) CHECK(all(block + usable, 0, 3 * size + 100 - usable));
        else if (on_alloc) CHECK(all(block + usable, 0xa5, 3 * size + 100 - usable));
        free(block);
    }
    if (on_free) {
        /* A small block's slot is still mapped: it reads as junk. */
        volatile unsigned char *block = malloc(200);
        void *neighbour = malloc(200);
        for (int i = 0; i < 200; i++) block[i] = 0x55;
        volatile unsigned char *gone = block;
        free((void *)block);
        for (int i = 16; i < 200; i++) CHECK(gone[i] == 0x5a);
        free(neighbour);
    }
}

/* realloc(p, 0) by the setting zero_realloc: free, alloc or abort. */
static void zero_realloc(void) {
    const char *mode = GET(const char *, "opt.zero_realloc");
    refresh();
    size_t counted = GET(size_t, "stats.zero_reallocs");
    uint64_t *deallocated = GET(uint64_t *, "thread.deallocatedp");
    void *block = malloc(1000);
    size_t usable = malloc_usable_size(block);
    uint64_t before = *deallocated;
    volatile size_t zero = 0;
    void *result = realloc(block, zero);
    CHECK(strcmp(mode, "abort") != 0);
    CHECK(*deallocated == before + usable);
    if (strcmp(mode, "free") == 0) {
        CHECK(result == NULL);
    } else {
        CHECK(strcmp(mode, "alloc") == 0 && result != NULL);
        free(result);
    }
    refresh();
    CHECK(GET(size_t, "stats.zero_reallocs") == counted + 1);
    /* Of nothing it is an allocation. */
    result = MUST(realloc(NULL, zero));
    free(result);
}

CASES(CASE(edges), CASE(aligned), CASE(posix_aligned), CASE(too_large), CASE(size_classes), CASE(filled_by_settings),
      CASE(zero_realloc))
