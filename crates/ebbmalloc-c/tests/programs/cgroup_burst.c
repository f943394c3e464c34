/* Two bursts one after the other, each of which fits into the cgroup's limit while both do not: the
 * first is freed but for a block in each 64 KiB, so that its memory serves no other size, and stays
 * idle until it goes back to the kernel. At once the second follows, in other threads and of
 * another size. */
#include "check.h"
#include "blocks.h"

enum { THREADS = 4 };
static const size_t BURST = 160 * MIB;
static pthread_barrier_t step;

/* Sleeps on what its cache holds. */
static void *first(void *unused) {
    const size_t size = 1024, count = BURST / THREADS / size;
    void **block = pointers(count);
    take(block, count, size, 1);
    for (size_t i = 0; i < count; i++)
        if (i % 64 != 0) free(block[i]);
    pthread_barrier_wait(&step);
    for (;;) pause();
    return unused;
}

static void *second(void *unused) {
    const size_t size = 3000, count = BURST / THREADS / size;
    take(pointers(count), count, size, 1);
    return unused;
}

int main(void) {
    require_preload();
    CHECK(pthread_barrier_init(&step, NULL, THREADS + 1) == 0);
    pthread_t thread;
    for (size_t i = 0; i < THREADS; i++) CHECK(pthread_create(&thread, NULL, first, NULL) == 0);
    pthread_barrier_wait(&step);
    pthread_t late[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&late[i], NULL, second, NULL) == 0);
    for (size_t i = 0; i < THREADS; i++) CHECK(pthread_join(late[i], NULL) == 0);
    return passed();
}
