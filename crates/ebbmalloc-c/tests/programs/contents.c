/* Contents: calloc is zero after dirty reuse, at every size and after pages came back from the
 * kernel; realloc keeps them over all size boundaries, up and down, small and large. */
#include "check.h"
#include <malloc.h>

/* musl has none of its own: there the preload's, or the archive's, is asked for by name. */
static void trim(void) {
#ifdef EBB_STATIC
    extern int malloc_trim(size_t);
    malloc_trim(0);
#else
    int (*malloc_trim_here)(size_t) = (int (*)(size_t))dlsym(RTLD_DEFAULT, "malloc_trim");
    CHECK(malloc_trim_here != NULL);
    malloc_trim_here(0);
#endif
}

static void calloc_is_zero(size_t size, int blocks) {
    static unsigned char *block[64];
    CHECK(blocks <= 64);
    for (int i = 0; i < blocks; i++) {
        block[i] = malloc(size);
        CHECK(block[i] != NULL);
        memset(block[i], 0xEE, malloc_usable_size(block[i]));
    }
    for (int i = 0; i < blocks; i++) free(block[i]);
    for (int i = 0; i < blocks; i++) {
        block[i] = i % 2 ? calloc(1, size) : calloc(size, 1);
        CHECK(block[i] != NULL);
        for (size_t j = 0; j < size; j++) CHECK(block[i][j] == 0);
        memset(block[i], 0xDD, size);
    }
    for (int i = 0; i < blocks; i++) free(block[i]);
}

static void *calloc_beside(void *unused) {
    uint64_t random = (uintptr_t)unused + 1;
    for (int i = 0; i < 20000; i++) {
        size_t size = mixed_size(&random) % 20000 + 1;
        unsigned char *block = calloc(1, size);
        CHECK(block != NULL);
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
        block = realloc(block, words * 4);
        CHECK(block != NULL);
        check_numbers(block, had < 70000 ? had : 70000);
        write_numbers(block, had, words);
        had = words;
    }
    check_numbers(block, had);
    /* Down again. */
    while (had > 1) {
        size_t words = had - 1 - had / 20;
        block = realloc(block, words * 4);
        CHECK(block != NULL);
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
            one = realloc(one, to * 4);
            CHECK(one != NULL);
            check_numbers(one, from < to ? from : to);
            free(neighbour);
            free(one);
        }
    /* A large block that grows by a page at a time is not copied each time: 2000 steps of up to
     * 100 MiB would take minutes. */
    double start = now_seconds();
    unsigned char *large = malloc(100 * MIB);
    CHECK(large != NULL);
    for (size_t i = 0; i < 100 * MIB; i += 4096) large[i] = 7;
    for (size_t step = 1; step <= 2000; step++) {
        large = realloc(large, 100 * MIB + step * 4096);
        CHECK(large != NULL);
        large[100 * MIB + step * 4096 - 1] = 7;
    }
    for (size_t i = 0; i < 100 * MIB; i += 4096) CHECK(large[i] == 7);
    free(large);
    CHECK(now_seconds() - start < 20);
}

int main(void) {
    require_preload();
    for (size_t size = 1; size < 40000; size += size < 1100 ? 1 : size / 9) calloc_is_zero(size, 16);
    for (size_t size = 50000; size < 6 * MIB; size = size * 2 + 4097) calloc_is_zero(size, 4);
    /* Between dirty use and calloc the purger may return the pages, whole or in part. */
    for (int round = 0; round < 3; round++) {
        for (size_t size = 24; size < 300000; size = size * 3 + 8) calloc_is_zero(size, 64);
        trim();
        sleep_ms(300);
    }
    pthread_t thread[4];
    for (uintptr_t i = 0; i < 4; i++)
        CHECK(pthread_create(&thread[i], NULL, calloc_beside, (void *)i) == 0);
    for (int i = 0; i < 20; i++) {
        trim();
        sleep_ms(10);
    }
    for (size_t i = 0; i < 4; i++) CHECK(pthread_join(thread[i], NULL) == 0);
    realloc_keeps();
    return passed();
}
