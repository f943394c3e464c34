/* 90 % of a burst of 256 MiB come back within 30 s, with no call by the program, whether the
 * threads that freed it are asleep, gone or busy elsewhere. Arguments: asleep, gone or busy; and
 * optionally the system call that a filter refuses from the program's start on, as a container's does
 * (see filter.h). */
#include "check.h"
#include "filter.h"
#include <stdatomic.h>

enum { THREADS = 4, BLOCKS = 16 << 10 };

static pthread_barrier_t step;
static atomic_int stop;
static const char *how;

/* The list of blocks is mapped, so that it is no part of the heap that is judged. */
static void *allocate_and_free(void *number) {
    uint64_t random = (uintptr_t)number * 7919 + 1;
    size_t bytes = BLOCKS * sizeof(void *);
    void **block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(block != MAP_FAILED);
    for (size_t i = 0; i < BLOCKS; i++) {
        /* 4 KiB on average: 64 MiB a thread. */
        size_t size = 64 + next_random(&random) % 8192;
        block[i] = malloc(size);
        CHECK(block[i] != NULL);
        memset(block[i], 1, size);
    }
    pthread_barrier_wait(&step); /* all are full */
    pthread_barrier_wait(&step); /* the peak is measured */
    for (size_t i = 0; i < BLOCKS; i++) free(block[i]);
    CHECK(munmap(block, bytes) == 0);
    if (strcmp(how, "gone") == 0) return NULL;
    pthread_barrier_wait(&step);
    if (strcmp(how, "asleep") == 0)
        for (;;) pause();
    /* Busy with one size that has nothing to do with the burst's. */
    while (!atomic_load(&stop)) {
        for (int i = 0; i < 200; i++) free(malloc(48));
        usleep(100);
    }
    return NULL;
}

int main(int count, char **arguments) {
    require_preload();
    CHECK(count == 2 || count == 3);
    how = arguments[1];
    /* A filter outlives exec. One that the program set up for itself would end the purger. */
    if (count == 3 && getenv("EBB_TEST_FILTERED") == NULL) {
        CHECK(setenv("EBB_TEST_FILTERED", "1", 1) == 0);
        refuse(arguments[2], EPERM);
        execv("/proc/self/exe", arguments);
        CHECK(!"exec");
    }
    CHECK(pthread_barrier_init(&step, NULL, THREADS + 1) == 0);
    free(malloc(100));
    size_t before = resident_bytes();
    pthread_t thread[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&thread[i], NULL, allocate_and_free, (void *)(i + 1)) == 0);
    pthread_barrier_wait(&step);
    size_t peak = resident_bytes();
    CHECK(peak > before + 240 * MIB);
    pthread_barrier_wait(&step);
    if (strcmp(how, "gone") == 0)
        for (size_t i = 0; i < THREADS; i++) CHECK(pthread_join(thread[i], NULL) == 0);
    else
        pthread_barrier_wait(&step);
    double start = now_seconds();
    size_t now;
    while ((now = resident_bytes()) > before + (peak - before) / 10) {
        if (now_seconds() - start > 30) {
            char line[128];
            snprintf(line, sizeof line, "before %zu, peak %zu, after 30 s %zu MiB\n", before / MIB,
                     peak / MIB, now / MIB);
            say(line);
            CHECK(!"90 % of the burst did not come back");
        }
        sleep_ms(50);
    }
    char line[128];
    snprintf(line, sizeof line, "returned after %.2f s\n", now_seconds() - start);
    say(line);
    atomic_store(&stop, 1);
    return passed();
}
