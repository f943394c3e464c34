/* What gdb looks at: a heap with a known string in it, a few threads, then "ready" and a long wait,
 * or with argument "abort" an abort that leaves a core. */
#include "check.h"

char *marker_block;

static void *allocate_and_sleep(void *seed) {
    struct churn set;
    churn_start(&set, (uintptr_t)seed);
    for (int i = 0; i < 5000; i++) churn_step(&set);
    for (;;) pause();
    return NULL;
}

int main(int count, char **arguments) {
    require_preload();
    CHECK(count == 2);
    for (uintptr_t i = 0; i < 3; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, allocate_and_sleep, (void *)i) == 0);
    }
    struct churn set;
    churn_start(&set, 50);
    for (int i = 0; i < 20000; i++) churn_step(&set);
    marker_block = malloc(100);
    CHECK(marker_block != NULL);
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
