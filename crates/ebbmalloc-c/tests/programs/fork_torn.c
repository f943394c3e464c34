/* Children of raw clone and _Fork, which run no fork handlers, copied while the allocator's own thread is at
 * work, of which the program knows nothing, or its own threads are. Each child goes on with what it got. Arguments:
 * how many children; how many threads beside the one that makes them. */
#include "check.h"

enum { BLOCKS = 8000 };

static void *block[BLOCKS];

static size_t size_of(size_t i) {
    return i % 500 == 0 ? 200000 : 16 + i * 37 % 3000;
}

static void allocate(size_t from, size_t step) {
    for (size_t i = from; i < BLOCKS; i += step) {
        block[i] = malloc(size_of(i));
        CHECK(block[i] != NULL);
        fill(block[i], size_of(i));
    }
}

static void release(size_t from, size_t step) {
    for (size_t i = from; i < BLOCKS; i += step) {
        CHECK(holds(block[i], size_of(i)));
        free(block[i]);
    }
}

/* What the parent freed is taken again, what it left is given back, all of it by turns. */
static void go_on(void) {
    alarm(60);
    for (size_t from = 0; from < 4; from++)
        if (from != 1) allocate(from, 4);
    for (size_t i = 1; i < BLOCKS; i += 8) {
        CHECK(holds(block[i], size_of(i)));
        block[i] = realloc(block[i], 2 * size_of(i));
        CHECK(block[i] != NULL);
        fill(block[i], size_of(i));
    }
    for (size_t from = 0; from < 4; from++) release(from, 4);
    allocate(0, 1);
    release(0, 1);
    _exit(0);
}

static void *churn(void *seed) {
    struct churn set;
    churn_start(&set, (uintptr_t)seed);
    for (;;) churn_step(&set);
    return NULL;
}

int main(int count, char **arguments) {
    require_preload();
    CHECK(count == 3);
    long children = atol(arguments[1]);
    for (long seed = 1; seed <= atol(arguments[2]); seed++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, churn, (void *)seed) == 0);
    }
    uint64_t random = 88172645463325252u;
    allocate(0, 1);
    for (long turn = 0; turn < children; turn++) {
        /* One in four stays. */
        for (size_t from = 0; from < 4; from++)
            if (from != 1) release(from, 4);
        double until = now_seconds() + (double)(next_random(&random) % 12000) / 1e6;
        while (now_seconds() < until) {
        }
        pid_t child;
#ifdef __GLIBC__
        if (turn % 2 == 0)
            child = _Fork();
        else
#endif
            child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        CHECK(child >= 0);
        if (child == 0) go_on();
        for (size_t from = 0; from < 4; from++)
            if (from != 1) allocate(from, 4);
        reap(child);
    }
    release(0, 1);
    return passed();
}
