/* Programs that tools look at: gdb, valgrind and the address sanitizer. */
#include "check.h"

/* What gdb looks at: a heap with a known string in it, a few threads, then "ready" and a long wait, or with argument
 * "abort" an abort that leaves a core. */
char *marker_block;

static void *allocate_and_sleep(void *seed) {
    struct churn set;
    churn_start(&set, (uintptr_t)seed);
    churn_steps(&set, 5000);
    for (;;) pause();
    return NULL;
}

static void inspected(void) {
    for (uintptr_t i = 0; i < 3; i++) started(allocate_and_sleep, (void *)i);
    struct churn set;
    churn_start(&set, 50);
    churn_steps(&set, 20000);
    marker_block = MUST(malloc(100));
    strcpy(marker_block, "the tide is out");
    if (strcmp(arguments[1], "abort") == 0) abort();
    CHECK(write(1, "ready\n", 6) == 6);
    alarm(120);
    /* Goes on allocating while it is looked at. */
    for (;;) {
        churn_step(&set);
        usleep(1000);
    }
}

/* A small, correct program: threads, blocks of all sizes, realloc, calloc, alignment. Run under valgrind and with a
 * sanitizer's runtime together with the preload. With argument "overflow" it writes past a block, which a sanitizer
 * must still see. */
static void *work(void *seed) {
    churn((uintptr_t)seed, 3000);
    return NULL;
}

static void plain(void) {
    pthread_t thread[3];
    for (uintptr_t i = 0; i < 3; i++) thread[i] = started(work, (void *)i);
    work((void *)9);
    join_all(thread, 3);
    char *block = MUST(calloc(10, 10));
    block = realloc(block, 1000);
    CHECK(block != NULL && block[99] == 0);
    free(block);
    void *aligned = NULL;
    CHECK(posix_memalign(&aligned, 4096, 100) == 0);
    free(aligned);
    if (argument_count == 2 && strcmp(arguments[1], "overflow") == 0) {
        volatile char *past = malloc(100);
        past[100] = 1;
        free((void *)past);
    }
}

CASES(CASE(inspected), CASE(plain))
