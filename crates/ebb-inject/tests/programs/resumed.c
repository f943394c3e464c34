/* One thread in poll, for the milliseconds of its argument (-1: without end), on its input. Says "ready" before, and
 * "RESULT MILLISECONDS" after each. Ends with its input. */
#include <malloc.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static long now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000 + at.tv_nsec / 1000000;
}

int main(int argc, char **argv) {
    int limit = argc > 1 ? atoi(argv[1]) : -1;
    /* Something to return. */
    void *blocks[1000];
    for (int i = 0; i < 1000; i++)
        blocks[i] = memset(malloc(30000), 1, 30000);
    void *volatile last = malloc(100);
    for (int i = 0; i < 1000; i++)
        free(blocks[i]);
    puts(last ? "ready" : "no memory");
    fflush(stdout);
    for (;;) {
        struct pollfd input = {.fd = 0, .events = POLLIN};
        long start = now();
        int result = poll(&input, 1, limit);
        printf("%d %ld\n", result, now() - start);
        fflush(stdout);
        char line;
        if (result != 0 && read(0, &line, 1) != 1)
            return 0;
    }
}
