/* pair: one malloc and one free of a fixed size, N times, for counting instructions.
 *
 * The three calls below are the only entries that the counter watches. Each is the
 * same few instructions around its callee, so call_nothing measures the frame. Run
 * under callgrind by instructions.py; run alone it prints nanoseconds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

enum { BATCH_MOST = 4096 };

/* The empty statement with a memory clobber keeps each call from becoming a jump. */
#define FENCE() __asm__ volatile("" ::: "memory")
#define WATCHED __attribute__((noipa))

WATCHED void nothing(size_t size_bytes)
{
    (void)size_bytes;
}

WATCHED void call_nothing(size_t size_bytes)
{
    nothing(size_bytes);
    FENCE();
}

WATCHED void *call_malloc(size_t size_bytes)
{
    void *at = malloc(size_bytes);
    FENCE();
    return at;
}

WATCHED void call_free(void *at)
{
    free(at);
    FENCE();
}

int main(int argc, char **argv)
{
    if (argc < 3 || argc > 4) {
        fprintf(stderr, "usage: pair PAIRS SIZE_BYTES [BATCH]\n"
                        "  BATCH blocks are allocated before the first is freed (1)\n");
        return 64;
    }
    long pairs = atol(argv[1]);
    size_t size_bytes = (size_t)atol(argv[2]);
    int batch = argc > 3 ? atoi(argv[3]) : 1;
    if (pairs < 1 || size_bytes < 1 || batch < 1 || batch > BATCH_MOST)
        return 64;
    static void *block[BATCH_MOST];
    const char *provider = malloc_provider();

    double from = clock_seconds();
    for (long done = 0; done < pairs; done += batch) {
        for (int i = 0; i < batch; i++) {
            block[i] = call_malloc(size_bytes);
            if (!block[i])
                return 3;
            *(volatile char *)block[i] = 1;
        }
        for (int i = 0; i < batch; i++)
            call_free(block[i]);
    }
    double wall_s = clock_seconds() - from;
    for (long i = 0; i < 1000; i++)
        call_nothing(size_bytes);
    printf("{\"program\": \"pair\", \"malloc_provider\": \"%s\", \"pairs\": %ld, \"size_bytes\": %zu, \"batch\": %d, "
           "\"ns_per_pair\": %.3f}\n",
           provider, pairs, size_bytes, batch, wall_s * 1e9 / (double)pairs);
    return 0;
}
