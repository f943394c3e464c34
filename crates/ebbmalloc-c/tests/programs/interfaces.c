/* The exported functions of libc: alignments, sizes, contents, errno and figures. */
#include "check.h"
#include <malloc.h>
#include <stddef.h>

/* Alignment: every power of two to 1 GiB through every function that takes one, the alignment that plain malloc owes by
 * size, and what is refused. */
static int aligned_to(const void *block, size_t alignment) { return ((uintptr_t)block & (alignment - 1)) == 0; }

static void use_and_free(unsigned char *block, size_t alignment, size_t size) {
    CHECK(block != NULL);
    CHECK(aligned_to(block, alignment));
    CHECK(malloc_usable_size(block) >= size);
    fill(block, size);
    RELEASE(block, size);
}

static void alignments(void) {
    for (size_t alignment = sizeof(void *); alignment <= ((size_t)1 << 30); alignment *= 2) {
        const size_t sizes[] = {1, alignment - 1, alignment, alignment + 1, 3 * alignment / 2, 100};
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            /* Past 64 MiB only the ends of a block are written (see fill). */
            void *block = NULL;
            size_t size = sizes[i] > 96 * MIB ? 96 * MIB : sizes[i];
            CHECK(posix_memalign(&block, alignment, size) == 0);
            use_and_free(block, alignment, size);
            use_and_free(aligned_alloc(alignment, size), alignment, size);
            use_and_free(memalign(alignment, size), alignment, size);
        }
    }

    /* Many at once do not overlap. */
    static void *held[10][64];
    for (size_t power = 4; power < 14; power++)
        for (size_t i = 0; i < 64; i++) {
            CHECK(posix_memalign(&held[power - 4][i], (size_t)1 << power, 40 * i + 1) == 0);
            fill(held[power - 4][i], 40 * i + 1);
        }
    for (size_t power = 4; power < 14; power++)
        for (size_t i = 0; i < 64; i++) {
            CHECK(aligned_to(held[power - 4][i], (size_t)1 << power));
            RELEASE(held[power - 4][i], 40 * i + 1);
        }

    /* An aligned block may be reallocated; its contents move along. */
    for (size_t alignment = 16; alignment <= 4 * MIB; alignment *= 4) {
        unsigned char *block = aligned_alloc(alignment, alignment);
        CHECK(block != NULL && aligned_to(block, alignment));
        memset(block, 0x5a, 16);
        block = MUST(realloc(block, 3 * alignment + 5));
        for (size_t i = 0; i < 16; i++) CHECK(block[i] == 0x5a);
        free(block);
    }

    for (size_t size = 1; size < 70000; size += size < 2000 ? 1 : 997) {
        void *block = MUST(malloc(size));
        CHECK(aligned_to(block, size >= _Alignof(max_align_t) ? _Alignof(max_align_t) : 8));
        free(block);
    }

    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    use_and_free(valloc(10), page, 10);
    use_and_free(valloc(0), page, 0);
#ifdef __GLIBC__ /* musl does not declare it */
    use_and_free(pvalloc(page + 1), page, 2 * page);
    use_and_free(pvalloc(0), page, 0);
    REFUSED(pvalloc(SIZE_MAX - 100), ENOMEM);
#endif

    void *untouched = &untouched;
    CHECK(posix_memalign(&untouched, 3, 10) == EINVAL);
    CHECK(posix_memalign(&untouched, 0, 10) == EINVAL);
    CHECK(posix_memalign(&untouched, sizeof(void *) / 2, 10) == EINVAL);
    CHECK(posix_memalign(&untouched, 24, 10) == EINVAL);
    CHECK(posix_memalign(&untouched, 4096, (size_t)PTRDIFF_MAX) == ENOMEM);
    CHECK(posix_memalign(&untouched, (size_t)1 << 62, 10) == ENOMEM);
    CHECK(untouched == &untouched); /* left alone on failure */
    REFUSED(aligned_alloc(4096, (size_t)PTRDIFF_MAX), ENOMEM);
    REFUSED(memalign(4096, SIZE_MAX - 100), ENOMEM);
    REFUSED(aligned_alloc(3, 10), EINVAL);
}

/* Edge sizes of every function, the errno each leaves, and that a usable size is usable. */
static const size_t too_large[] = {(size_t)PTRDIFF_MAX + 1, (size_t)PTRDIFF_MAX, SIZE_MAX, SIZE_MAX - 4096,
                                   SIZE_MAX / 2 + 2};

static void sizes(void) {
    /* Size 0: distinct, freeable, aligned. */
    void *zero[3] = {malloc(0), malloc(0), calloc(0, 5)};
    for (int i = 0; i < 3; i++) CHECK(zero[i] != NULL);
    CHECK(zero[0] != zero[1] && zero[1] != zero[2]);
    CHECK(calloc(5, 0) != NULL);
    for (int i = 0; i < 3; i++) free(zero[i]);
    free(NULL);
    CHECK(malloc_usable_size(NULL) == 0);
    void *out = NULL;
    CHECK(posix_memalign(&out, 64, 0) == 0);
    free(out);
    free(aligned_alloc(64, 0));
    free(memalign(64, 0));

    /* More than an object can be. */
    for (size_t i = 0; i < sizeof too_large / sizeof *too_large; i++) {
        /* volatile: the compiler knows that these cannot succeed. */
        volatile size_t size = too_large[i];
        REFUSED(malloc(size), ENOMEM);
        REFUSED(calloc(1, size), ENOMEM);
        REFUSED(calloc(size, 1), ENOMEM);
        REFUSED(realloc(NULL, size), ENOMEM);
        REFUSED(valloc(size), ENOMEM);
        REFUSED(reallocarray(NULL, size, 1), ENOMEM);
        /* A failed realloc leaves the block alone. */
        void *kept = FILLED(100);
        REFUSED(realloc(kept, size), ENOMEM);
        RELEASE(kept, 100);
    }
    volatile size_t half = (size_t)1 << 32;
    REFUSED(calloc(half, half), ENOMEM);
    REFUSED(calloc(half + 1, half + 7), ENOMEM);
    REFUSED(reallocarray(NULL, half, half), ENOMEM);
    void *array = reallocarray(NULL, 10, 20);
    CHECK(array != NULL && malloc_usable_size(array) >= 200);
    fill(array, 200);
    REFUSED(reallocarray(array, half, half + 3), ENOMEM);
    CHECK(holds(array, 200));
    free(MUST(reallocarray(array, 100, 20)));

    /* realloc's own forms: of NULL it is malloc; to 0 it frees and returns NULL, as in glibc. */
    void *block = MUST(realloc(NULL, 10));
    errno = 0;
    CHECK(realloc(block, 0) == NULL);
    CHECK(errno == 0);
    free(MUST(realloc(NULL, 0)));

    /* Success and free leave errno alone, also where they go to the kernel. */
    for (size_t size = 1; size < 64 * MIB; size = size * 3 + 1) {
        errno = 12345;
        void *one = malloc(size);
        CHECK(one != NULL && errno == 12345);
        one = realloc(one, size * 2);
        CHECK(one != NULL && errno == 12345);
        free(one);
        CHECK(errno == 12345);
        one = calloc(1, size);
        CHECK(one != NULL && errno == 12345);
        free(one);
        CHECK(errno == 12345);
    }

    /* The usable bytes are writable, do not overlap the neighbours, and are at least the requested size. */
    for (size_t size = 0; size <= 9 * MIB; size += size < 3000 ? 1 : size / 7) {
        unsigned char *one = malloc(size), *two = malloc(size);
        CHECK(one != NULL && two != NULL);
        size_t usable = malloc_usable_size(one), other = malloc_usable_size(two);
        CHECK(usable >= size && other >= size);
        /* At most an eighth more than was asked, above 128 bytes and short of whole pages. */
        if (size > 128 && size < 32 << 10) CHECK(usable <= size + size / 7 + 16);
        fill(one, usable);
        fill(two, other);
        CHECK(holds(one, usable) && holds(two, other));
        memset(one, 0xAB, usable);
        CHECK(holds(two, other));
        free(one);
        RELEASE(two, other);
    }

    /* C23's sized forms, where the library has them, take the size that was asked for. */
    void (*free_sized)(void *, size_t) = (void (*)(void *, size_t))dlsym(RTLD_DEFAULT, "free_sized");
    void (*free_aligned_sized)(void *, size_t, size_t) =
        (void (*)(void *, size_t, size_t))dlsym(RTLD_DEFAULT, "free_aligned_sized");
    void (*cfree)(void *) = (void (*)(void *))dlsym(RTLD_DEFAULT, "cfree");
    if (getenv("EBB_TEST_FOREIGN_ALLOCATOR") == NULL)
        CHECK(free_sized != NULL && free_aligned_sized != NULL && cfree != NULL);
    for (size_t size = 0; size < 5 * MIB && free_sized != NULL; size = size * 2 + 1) {
        for (int turn = 0; turn < 300; turn++) {
            free_sized(malloc(size), size);
            free_sized(calloc(1, size), size);
            free_sized(realloc(malloc(3), size + 1), size + 1);
            free_aligned_sized(aligned_alloc(128, size), 128, size);
            cfree(malloc(size));
            if (size > 65536) break;
        }
    }
    if (free_sized != NULL) {
        free_sized(NULL, 10);
        free_aligned_sized(NULL, 64, 10);
    }
}

/* Contents: calloc is zero after dirty reuse, at every size and after pages came back from the kernel; realloc keeps
 * them over all size boundaries, up and down, small and large. */
static void calloc_is_zero(size_t size, int blocks) {
    static unsigned char *block[64];
    CHECK(blocks <= 64);
    for (int i = 0; i < blocks; i++) {
        block[i] = MUST(malloc(size));
        memset(block[i], 0xEE, malloc_usable_size(block[i]));
    }
    for (int i = 0; i < blocks; i++) free(block[i]);
    for (int i = 0; i < blocks; i++) {
        block[i] = MUST(i % 2 ? calloc(1, size) : calloc(size, 1));
        for (size_t j = 0; j < size; j++) CHECK(block[i][j] == 0);
        memset(block[i], 0xDD, size);
    }
    for (int i = 0; i < blocks; i++) free(block[i]);
}

static void *calloc_beside(void *unused) {
    uint64_t random = (uintptr_t)unused + 1;
    for (int i = 0; i < 20000; i++) {
        size_t size = mixed_size(&random) % 20000 + 1;
        unsigned char *block = MUST(calloc(1, size));
        for (size_t j = 0; j < size; j++) CHECK(block[j] == 0);
        memset(block, 0xCC, size);
        free(block);
    }
    return NULL;
}

static void write_numbers(uint32_t *block, size_t from, size_t to) {
    for (size_t i = from; i < to; i++) block[i] = (uint32_t)(i * 2654435761u);
}

static void check_numbers(const uint32_t *block, size_t to) {
    for (size_t i = 0; i < to; i++) CHECK(block[i] == (uint32_t)(i * 2654435761u));
}

static void realloc_keeps(void) {
    /* Up through every size class and large, by steps that stop just short of and past each. */
    uint32_t *block = NULL;
    size_t had = 0;
    for (size_t words = 1; words < 12 * MIB / 4; words += 1 + words / 24) {
        block = MUST(realloc(block, words * 4));
        check_numbers(block, had < 70000 ? had : 70000);
        write_numbers(block, had, words);
        had = words;
    }
    check_numbers(block, had);
    /* Down again. */
    while (had > 1) {
        size_t words = had - 1 - had / 20;
        block = MUST(realloc(block, words * 4));
        check_numbers(block, words < 70000 ? words : 70000);
        had = words;
    }
    free(block);
    /* Straight jumps, both ways, with neighbours in place so that little can grow in place. */
    static const size_t mark[] = {1,    4,     100,   1000,  1024,       4096,    4100,
                                  8192, 16384, 32768, 65536, 262144 + 4, 1048576, 5 * MIB};
    enum { MARKS = sizeof mark / sizeof *mark };
    for (size_t i = 0; i < MARKS; i++)
        for (size_t j = 0; j < MARKS; j++) {
            size_t from = mark[i] / 4 + 1, to = mark[j] / 4 + 1;
            uint32_t *one = malloc(from * 4);
            void *neighbour = malloc(from * 4);
            CHECK(one != NULL && neighbour != NULL);
            write_numbers(one, 0, from);
            one = MUST(realloc(one, to * 4));
            check_numbers(one, from < to ? from : to);
            free(neighbour);
            free(one);
        }
    /* A large block that grows by a page at a time is not copied each time: 2000 steps of up to 100 MiB would take
     * minutes. */
    double start = now_seconds();
    unsigned char *large = MUST(malloc(100 * MIB));
    for (size_t i = 0; i < 100 * MIB; i += 4096) large[i] = 7;
    for (size_t step = 1; step <= 2000; step++) {
        large = MUST(realloc(large, 100 * MIB + step * 4096));
        large[100 * MIB + step * 4096 - 1] = 7;
    }
    for (size_t i = 0; i < 100 * MIB; i += 4096) CHECK(large[i] == 7);
    free(large);
    CHECK(now_seconds() - start < 20);
}

static void contents(void) {
    for (size_t size = 1; size < 40000; size += size < 1100 ? 1 : size / 9) calloc_is_zero(size, 16);
    for (size_t size = 50000; size < 6 * MIB; size = size * 2 + 4097) calloc_is_zero(size, 4);
    /* Between dirty use and calloc the purger may return the pages, whole or in part. */
    for (int round = 0; round < 3; round++) {
        for (size_t size = 24; size < 300000; size = size * 3 + 8) calloc_is_zero(size, 64);
        trim();
        sleep_ms(300);
    }
    pthread_t thread[4];
    for (uintptr_t i = 0; i < 4; i++) thread[i] = started(calloc_beside, (void *)i);
    for (int i = 0; i < 20; i++) {
        trim();
        sleep_ms(10);
    }
    join_all(thread, 4);
    realloc_keeps();
}

/* Clauses that the cases above leave out. */
static void clauses(void) {
    /* A size that is no multiple of the alignment. */
    for (size_t size = 1; size < 70000; size = size * 3 + 1) {
        unsigned char *block = MUST(aligned_alloc(4096, size));
        CHECK(aligned_to(block, 4096));
        fill(block, size);
        CHECK(holds(block, size));
        free(block);
    }
    /* posix_memalign reports by its value alone. */
    void *block = NULL;
    errno = 12345;
    CHECK(posix_memalign(&block, 3, 10) == EINVAL && errno == 12345);
    CHECK(posix_memalign(&block, 64, 10) == 0 && errno == 12345);
    free(block);
    /* The usable size stays while neighbours come and go and pages return. */
    for (size_t size = 1; size < 3 * MIB; size = size * 2 + 1) {
        void *one = MUST(malloc(size));
        size_t usable = malloc_usable_size(one);
        for (int i = 0; i < 50; i++) free(MUST(malloc(size)));
        trim();
        CHECK(malloc_usable_size(one) == usable);
        free(one);
    }
    /* A wrong size frees the block, of whatever size it is. */
    void (*free_sized)(void *, size_t) = (void (*)(void *, size_t))dlsym(RTLD_DEFAULT, "free_sized");
    for (int i = 0; i < 1000 && free_sized != NULL && getenv("EBB_TEST_FOREIGN_ALLOCATOR") == NULL; i++) {
        void *one = MUST(malloc(100)), *other = MUST(malloc(100));
        fill(other, 100);
        free_sized(one, 5000);
        CHECK(holds(other, 100));
        free(other);
    }
}

CASES(CASE(alignments), CASE(sizes), CASE(contents), CASE(clauses))
