/* One thread only allocates, another only frees: the freer's cache never serves an allocation, so
 * what it holds must flow back; resident memory stays near the queue's size. */
#include "check.h"
#include <stdatomic.h>

#define QUEUE 4096

static _Atomic(void *) queue[QUEUE];
static size_t queue_size[QUEUE];
static long total;

static void *free_all(void *unused) {
    (void)unused;
    for (long i = 0; i < total; i++) {
        void *block;
        for (long spins = 0; (block = atomic_load(&queue[i % QUEUE])) == NULL; spins++)
            if (spins > 500) sched_yield();
        CHECK(holds(block, queue_size[i % QUEUE]));
        free(block);
        atomic_store(&queue[i % QUEUE], NULL);
    }
    return NULL;
}

int main(void) {
    require_preload();
    total = scaled(600000, 10000000);
    size_t before = resident_bytes();
    pthread_t freer;
    CHECK(pthread_create(&freer, NULL, free_all, NULL) == 0);
    uint64_t random = 5;
    size_t peak = 0;
    for (long i = 0; i < total; i++) {
        for (long spins = 0; atomic_load(&queue[i % QUEUE]) != NULL; spins++)
            if (spins > 500) sched_yield();
        size_t size = 1 + next_random(&random) % 2000;
        void *block = malloc(size);
        CHECK(block != NULL);
        fill(block, size);
        queue_size[i % QUEUE] = size;
        atomic_store(&queue[i % QUEUE], block);
        if (i % 20000 == 0) {
            size_t seen = resident_bytes();
            if (seen > peak) peak = seen;
        }
    }
    CHECK(pthread_join(freer, NULL) == 0);
    /* 600 MB pass through; at most 8 MiB are alive at once. */
    CHECK(peak < before + 96 * MIB);
    return passed();
}
