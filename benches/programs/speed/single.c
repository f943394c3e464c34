/* Cases in which each thread frees what it allocated. */
#include "speed/cases.h"

#include <stdlib.h>
#include <string.h>

#include "random.h"

/* pair: the cache's shortest path, one block of 64 bytes. */
static uint64_t run_pair(const struct team *team, unsigned index)
{
    (void)index;
    for (uint64_t i = 0; i < team->rounds; i++)
        free(must_allocate(64));
    return team->rounds;
}

/* batch: 1000 blocks of 64 bytes in, then out in the same order, so that caches are
 * filled and flushed all the time. */
static uint64_t run_batch(const struct team *team, unsigned index)
{
    enum { BLOCKS = 1000 };
    void *block[BLOCKS];
    (void)index;
    for (uint64_t round = 0; round < team->rounds; round++) {
        for (int i = 0; i < BLOCKS; i++)
            block[i] = must_allocate(64);
        for (int i = 0; i < BLOCKS; i++)
            free(block[i]);
    }
    return team->rounds * BLOCKS;
}

/* mixed: 20000 live blocks of 16 B to 4 KiB, one at random replaced each time. */
static uint64_t run_mixed(const struct team *team, unsigned index)
{
    enum { LIVE = 20000, SIZES = 4096 };
    struct random_state random = random_seeded(index + 1);
    void **block = must_allocate(LIVE * sizeof *block);
    /* Sizes are drawn beforehand: exp() would cost more than the request. */
    uint32_t *size_bytes = must_allocate(SIZES * sizeof *size_bytes);
    for (int i = 0; i < SIZES; i++)
        size_bytes[i] = (uint32_t)random_log_uniform(&random, 16, 4096);
    for (int i = 0; i < LIVE; i++)
        block[i] = must_allocate(size_bytes[i % SIZES]);
    for (uint64_t round = 0; round < team->rounds; round++) {
        uint64_t draw = random_next(&random);
        uint32_t slot = (uint32_t)((draw >> 40) * LIVE >> 24);
        free(block[slot]);
        block[slot] = must_allocate(size_bytes[draw % SIZES]);
    }
    for (int i = 0; i < LIVE; i++)
        free(block[i]);
    free(block);
    free(size_bytes);
    return team->rounds;
}

/* buffers: 16 live buffers of 64 KiB to 4 MiB, one replaced each time, every page of
 * it written: an allocator that returns memory too early pays for it here. */
static uint64_t run_buffers(const struct team *team, unsigned index)
{
    enum { LIVE = 16, PAGE = 4096 };
    struct random_state random = random_seeded(index + 1);
    volatile char *buffer[LIVE] = {0};
    for (uint64_t round = 0; round < team->rounds; round++) {
        uint32_t slot = random_below(&random, LIVE);
        size_t size_bytes = random_log_uniform(&random, 64 << 10, 4 << 20);
        free((void *)buffer[slot]);
        buffer[slot] = must_allocate(size_bytes);
        for (size_t at = 0; at < size_bytes; at += PAGE)
            buffer[slot][at] = 1;
    }
    for (int i = 0; i < LIVE; i++)
        free((void *)buffer[i]);
    return team->rounds;
}

/* realloc: a growing byte string, by half its length each time, to 8 MiB. */
static uint64_t run_realloc(const struct team *team, unsigned index)
{
    uint64_t operations = 0;
    (void)index;
    for (uint64_t round = 0; round < team->rounds; round++) {
        size_t size_bytes = 16;
        char *text = must_allocate(size_bytes);
        while (size_bytes < 8 << 20) {
            size_t grown_bytes = size_bytes + size_bytes / 2;
            text = realloc(text, grown_bytes);
            if (!text)
                abort();
            memset(text + size_bytes, 1, grown_bytes - size_bytes);
            size_bytes = grown_bytes;
            operations++;
        }
        free(text);
    }
    return operations;
}

/* calloc: zeroed blocks of 256 B to 64 KiB, 64 of them at a time. */
static uint64_t run_calloc(const struct team *team, unsigned index)
{
    enum { LIVE = 64 };
    struct random_state random = random_seeded(index + 1);
    volatile char *block[LIVE] = {0};
    for (uint64_t round = 0; round < team->rounds; round++) {
        uint32_t slot = random_below(&random, LIVE);
        size_t size_bytes = 256u << random_below(&random, 9);
        free((void *)block[slot]);
        block[slot] = calloc(1, size_bytes);
        if (!block[slot] || block[slot][size_bytes - 1])
            abort();
        block[slot][0] = 1;
        block[slot][size_bytes - 1] = 1;
    }
    for (int i = 0; i < LIVE; i++)
        free((void *)block[i]);
    return team->rounds;
}

const struct speed_case single_cases[] = {
    {"pair", "malloc and free of 64 B", 40000000, 1, NULL, run_pair},
    {"batch", "1000 x 64 B in, then out", 20000, 1, NULL, run_batch},
    {"mixed", "20000 live blocks of 16 B-4 KiB, one replaced", 8000000, 1, NULL, run_mixed},
    {"buffers", "16 live buffers of 64 KiB-4 MiB, one replaced, each page written", 10000, 1, NULL, run_buffers},
    {"realloc", "a string grown by halves to 8 MiB, one realloc", 600, 1, NULL, run_realloc},
    {"calloc", "64 live zeroed blocks of 256 B-64 KiB, one replaced", 500000, 1, NULL, run_calloc},
};
const size_t single_case_count = sizeof single_cases / sizeof *single_cases;
