/* How long idle pages stay, seen from the program: `buffers` and `server` need theirs again before it
 * is worth returning them and print how many pages were faulted in again, and how many there are in
 * all turns together; `prompt` prints which share of what came back had come two seconds after a
 * burst; `idle` says so when its burst is over and does nothing any more. */
#include "check.h"
#include "blocks.h"
#include <sys/resource.h>

static long minor_faults(void) {
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    return usage.ru_minflt;
}

static void print_faults(long faults, size_t pages) {
    char line[96];
    int length = snprintf(line, sizeof line, "faults %ld of %zu\n", faults, pages);
    CHECK(write(1, line, (size_t)length) == length);
}

static void touch(char *block, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 4096) block[at] = 1;
}

/* A buffer of 16 MiB that comes and goes 20 times a second. */
static void buffers(void) {
    enum { TURNS = 40 };
    const size_t bytes = 16 * MIB;
    long before = 0;
    for (int turn = 0; turn <= TURNS; turn++) {
        if (turn == 1) before = minor_faults();
        char *block = malloc(bytes);
        CHECK(block != NULL);
        touch(block, bytes);
        free(block);
        sleep_ms(50);
    }
    print_faults(minor_faults() - before, TURNS * bytes / 4096);
}

/* Ten requests a second, each of which allocates its 3 MiB anew. */
static void request(uint64_t *random) {
    enum { BLOCKS = 1500 };
    static void *block[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) {
        size_t size = 16 + next_random(random) % 2700;
        block[i] = malloc(size);
        CHECK(block[i] != NULL);
        memset(block[i], 1, size);
    }
    char *body = malloc(MIB);
    CHECK(body != NULL);
    touch(body, MIB);
    free(body);
    for (size_t i = 0; i < BLOCKS; i++) free(block[i]);
}

static void server(void) {
    enum { WARM = 10, REQUESTS = 40 };
    uint64_t random = 88172645463325252u;
    long before = 0;
    for (int turn = 0; turn < WARM + REQUESTS; turn++) {
        if (turn == WARM) before = minor_faults();
        request(&random);
        sleep_ms(100);
    }
    print_faults(minor_faults() - before, REQUESTS * 3 * MIB / 4096);
}

static pthread_barrier_t step;

/* 32 MiB of small blocks, all freed; the thread stays. */
static void *burst(void *unused) {
    enum { BLOCKS = 32 << 10 };
    void **block = pointers(BLOCKS);
    take(block, BLOCKS, 1, 2048);
    pthread_barrier_wait(&step);
    give_back(block, BLOCKS);
    CHECK(munmap(block, BLOCKS * sizeof *block) == 0);
    pthread_barrier_wait(&step);
    for (;;) pause();
    return unused;
}

static size_t run_burst(void) {
    enum { THREADS = 4 };
    CHECK(pthread_barrier_init(&step, NULL, THREADS + 1) == 0);
    pthread_t thread;
    for (size_t i = 0; i < THREADS; i++) CHECK(pthread_create(&thread, NULL, burst, NULL) == 0);
    pthread_barrier_wait(&step);
    size_t peak = resident_bytes();
    pthread_barrier_wait(&step);
    return peak;
}

static void prompt(void) {
    size_t peak = run_burst();
    sleep_ms(2000);
    size_t after_two = resident_bytes();
    sleep_ms(6000);
    size_t after_all = resident_bytes();
    CHECK(peak > after_all + 100 * MIB);
    char line[96];
    int length = snprintf(line, sizeof line, "share %zu\n",
                          (peak - after_two) * 1000 / (peak - after_all));
    CHECK(write(1, line, (size_t)length) == length);
}

int main(int count, char **arguments) {
    require_preload();
    CHECK(count == 2);
    if (strcmp(arguments[1], "buffers") == 0) buffers();
    if (strcmp(arguments[1], "server") == 0) server();
    if (strcmp(arguments[1], "prompt") == 0) prompt();
    if (strcmp(arguments[1], "idle") == 0) {
        run_burst();
        passed();
        for (;;) pause();
    }
    return passed();
}
