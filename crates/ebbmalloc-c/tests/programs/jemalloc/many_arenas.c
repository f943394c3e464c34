/* Two hundred arenas at a time, a thread or more on each, blocks freed by others. */
#include "control.h"

#define ARENAS 200
#define THREADS 8

static unsigned arenas[ARENAS];

static void *worker(void *seed) {
    uint64_t random = (uint64_t)(uintptr_t)seed * 77 + 1;
    void *held[64] = {0};
    size_t sizes[64];
    for (int step = 0; step < 8000; step++) {
        unsigned slot = next_random(&random) % 64;
        if (held[slot] != NULL) {
            CHECK(holds(held[slot], sizes[slot]));
            dallocx(held[slot], next_random(&random) % 2 ? 0 : MALLOCX_TCACHE_NONE);
            held[slot] = NULL;
            continue;
        }
        sizes[slot] = 1 + next_random(&random) % (step % 50 == 0 ? 60 * KIB : 600);
        unsigned arena = arenas[next_random(&random) % ARENAS];
        held[slot] = mallocx(sizes[slot], MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE);
        CHECK(held[slot] != NULL);
        fill(held[slot], sizes[slot]);
    }
    for (unsigned slot = 0; slot < 64; slot++) free(held[slot]);
    return NULL;
}

int main(void) {
    require_preload();
    for (unsigned i = 0; i < ARENAS; i++) arenas[i] = GET(unsigned, "arenas.create");
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, worker, (void *)(i + 1)) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CALL("thread.tcache.flush");
    refresh();
    uint64_t made = 0;
    for (unsigned i = 0; i < ARENAS; i++) {
        CHECK(GET(size_t, named("stats.arenas.%u.small.allocated", arenas[i])) == 0);
        made += GET(uint64_t, named("stats.arenas.%u.small.nmalloc", arenas[i]));
    }
    CHECK(made > 10000);
    /* A child has them all as well. */
    void *block = mallocx(5000, MALLOCX_ARENA(arenas[7]) | MALLOCX_TCACHE_NONE);
    fill(block, 5000);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(holds(block, 5000));
        free(block);
        CALL("thread.tcache.flush");
        for (unsigned i = 0; i < ARENAS; i++) {
            void *one = mallocx(700, MALLOCX_ARENA(arenas[i]) | MALLOCX_TCACHE_NONE);
            CHECK(one != NULL);
            fill(one, 700);
            dallocx(one, MALLOCX_TCACHE_NONE);
            CALL(named("arena.%u.destroy", arenas[i]));
        }
        _exit(0);
    }
    reap(child);
    CHECK(holds(block, 5000));
    free(block);
    CALL("thread.tcache.flush");
    for (unsigned i = 0; i < ARENAS; i++) CALL(named("arena.%u.destroy", arenas[i]));
    return passed();
}
