/* Slabs of few large slots, whose last pages hold no slot, become whole while the sweep returns just
 * those pages: threads that take and free them in batches, against one that trims without pause. */
#include "check.h"
#include <malloc.h>
#include <stdatomic.h>

enum { THREADS = 3, BATCH = 40, ROUNDS = 1000 };

static atomic_int running = THREADS;

static void *churn(void *seed) {
    uint64_t random = (uintptr_t)seed;
    char *blocks[BATCH];
    for (int round = 0; round < ROUNDS; round++) {
        /* 22 to 64 KiB: each class of these wastes a page or more of its slabs. */
        size_t size = 22000 + next_random(&random) % 40000;
        int count = 1 + (int)(next_random(&random) % BATCH);
        for (int i = 0; i < count; i++) {
            blocks[i] = malloc(size);
            CHECK(blocks[i] != NULL);
            blocks[i][0] = (char)i;
            blocks[i][size - 1] = (char)i;
        }
        for (int i = 0; i < count; i++) {
            CHECK(blocks[i][0] == (char)i && blocks[i][size - 1] == (char)i);
            free(blocks[i]);
        }
    }
    atomic_fetch_sub(&running, 1);
    return NULL;
}

int main(void) {
    require_preload();
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)) == 0);
    while (atomic_load(&running) > 0) malloc_trim(0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    return passed();
}
