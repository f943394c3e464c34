/* Memory that is returned: bursts, cgroups, and a program that only grows. */
#include "check.h"
#include "blocks.h"
#include "filter.h"
#include <stdatomic.h>

/* 90 % of a burst of 256 MiB come back within 30 s, with no call by the program, whether the threads that freed it are
 * asleep, gone or busy elsewhere. Arguments: asleep, gone or busy; and optionally the system call that a filter refuses
 * from the program's start on, as a container's does (see filter.h). */
enum { THREADS = 4, BLOCKS = 16 << 10 };

static pthread_barrier_t step;
static atomic_int stop;
static const char *how;

/* The list of blocks is mapped, so that it is no part of the heap that is judged. */
static void *allocate_and_free(void *number) {
    uint64_t random = (uintptr_t)number * 7919 + 1;
    void **block = pointers(BLOCKS);
    for (size_t i = 0; i < BLOCKS; i++) {
        /* 4 KiB on average: 64 MiB a thread. */
        size_t size = 64 + next_random(&random) % 8192;
        block[i] = MUST(malloc(size));
        memset(block[i], 1, size);
    }
    pthread_barrier_wait(&step); /* all are full */
    pthread_barrier_wait(&step); /* the peak is measured */
    give_back(block, BLOCKS);
    CHECK(munmap(block, BLOCKS * sizeof *block) == 0);
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

static void burst(void) {
    how = arguments[1];
    /* A filter outlives exec. One that the program set up for itself would end the purger. */
    if (argument_count == 3 && getenv("EBB_TEST_FILTERED") == NULL) {
        CHECK(setenv("EBB_TEST_FILTERED", "1", 1) == 0);
        refuse(arguments[2], EPERM);
        execv("/proc/self/exe", arguments - 1);
        CHECK(!"exec");
    }
    CHECK(pthread_barrier_init(&step, NULL, THREADS + 1) == 0);
    free(malloc(100));
    size_t before = resident_bytes();
    pthread_t thread[THREADS];
    start_all(thread, THREADS, allocate_and_free);
    pthread_barrier_wait(&step);
    size_t peak = resident_bytes();
    CHECK(peak > before + 240 * MIB);
    pthread_barrier_wait(&step);
    if (strcmp(how, "gone") == 0) join_all(thread, THREADS);
    else pthread_barrier_wait(&step);
    double start = now_seconds();
    size_t now;
    while ((now = resident_bytes()) > before + (peak - before) / 10) {
        if (now_seconds() - start > 30) {
            char line[128];
            snprintf(line, sizeof line, "before %zu, peak %zu, after 30 s %zu MiB\n", before / MIB, peak / MIB,
                     now / MIB);
            say(line);
            CHECK(!"90 % of the burst did not come back");
        }
        sleep_ms(50);
    }
    char line[128];
    snprintf(line, sizeof line, "returned after %.2f s\n", now_seconds() - start);
    say(line);
    atomic_store(&stop, 1);
}

/* Shows which settings are in force: allocates 64 MiB, frees them, waits, and prints how many MiB are still resident above
 * the start. Argument: milliseconds to wait. */
static void held(void) {
    enum { HELD_BLOCKS = 64 << 10 };
    void **block = pointers(HELD_BLOCKS);
    free(malloc(100));
    size_t start = resident_bytes();
    take(block, HELD_BLOCKS, 1000, 1);
    give_back(block, HELD_BLOCKS);
    sleep_ms(atol(arguments[1]));
    size_t now = resident_bytes();
    printf("held %zu\n", now > start ? (now - start) / MIB : 0);
    fflush(stdout);
}

/* Two bursts in a cgroup. Each fits into the limit, both together do not. The first burst is freed, except for one block
 * per 64 KiB, so that no other size can use its memory: the memory is idle until it is returned to the kernel. The second
 * burst follows at once, in other threads and with another size. */
enum { HALVES = 4 };
static const size_t BURST = 160 * MIB;
static pthread_barrier_t first_done;

/* Sleeps on what its cache holds. */
static void *first(void *unused) {
    const size_t size = 1024, count = BURST / HALVES / size;
    void **block = pointers(count);
    take(block, count, size, 1);
    for (size_t i = 0; i < count; i++)
        if (i % 64 != 0) free(block[i]);
    pthread_barrier_wait(&first_done);
    for (;;) pause();
    return unused;
}

static void *second(void *unused) {
    const size_t size = 3000, count = BURST / HALVES / size;
    take(pointers(count), count, size, 1);
    return unused;
}

static void two_bursts(void) {
    CHECK(pthread_barrier_init(&first_done, NULL, HALVES + 1) == 0);
    for (size_t i = 0; i < HALVES; i++) started(first, NULL);
    pthread_barrier_wait(&first_done);
    run_threads(HALVES, second);
}

/* Near the limit of its cgroup (72 of 80 MiB live) a program of one thread goes on freeing and taking, so that the
 * purger stays and looks at the limit: what it opens must never have the number that the program's next descriptor is
 * expected to have. Memory is returned all the while. */
static void near_limit(void) {
    int expected = open("/dev/null", O_RDONLY);
    CHECK(expected >= 0);
    CHECK(close(expected) == 0);
    for (size_t i = 0; i < 72 * MIB / 4096; i++) {
        char *block = MUST(malloc(4000));
        memset(block, 1, 4000);
    }
    double end = now_seconds() + 4;
    char *block = NULL;
    for (unsigned turn = 0; now_seconds() < end; turn++) {
        if (turn % 20000 == 0) {
            free(block);
            block = MUST(malloc(3 * MIB));
            memset(block, 1, 3 * MIB);
        }
        int file = open("/dev/null", O_RDONLY);
        CHECK(file == expected);
        CHECK(close(file) == 0);
    }
}

/* A program that only grows: what it has published in its stats_file, whose path is the argument, is never more than a
 * step of growth old. crates/ebb-stats: magic, version, number of counters, then the counters; live_bytes is the
 * first. */
static size_t published_live(const char *path) {
    unsigned char page[24];
    int file = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0);
    CHECK(read(file, page, sizeof page) == (ssize_t)sizeof page);
    close(file);
    CHECK(memcmp(page, "ebbstat", 8) == 0);
    uint64_t live;
    memcpy(&live, page + 16, sizeof live);
    return live;
}

static void growing(void) {
    char path[512];
    snprintf(path, sizeof path, "%s/%d", arguments[1], (int)getpid());
    size_t live = 0;
    for (int turn = 0; turn < 100; turn++) {
        for (int i = 0; i < 1024; i++, live += 1024) {
            char *block = MUST(malloc(1024));
            block[0] = 1;
        }
        /* A step is of fresh pages: slabs of this size hold no more than their slots. */
        CHECK(published_live(path) + 5 * MIB > live);
    }
    MUST(malloc(32 * MIB));
    CHECK(published_live(path) + 5 * MIB > live + 32 * MIB);
}

/* What is returned from inside of huge pages is no longer charged to the cgroup, whose usage is in the file that the first
 * argument names. The second says whether the block and the slabs are to have huge pages: "huge", if the kernel gives
 * them, or "small". */
static size_t number_in(const char *path, const char *key) {
    char text[4096];
    read_text(path, text, sizeof text);
    const char *at = strstr(text, key);
    CHECK(at != NULL);
    return strtoul(at + strlen(key), NULL, 10);
}

static void charge(void) {
    enum { SLOTS = 4 << 20, SLOT = 48, KEPT = 8192 };
    void **slot = pointers(SLOTS);
    memset(slot, 1, SLOTS * sizeof *slot);
    free(malloc(100));
    size_t base = number_in(arguments[1], ""), start = resident_bytes();
    char *block = MUST(malloc(128 * MIB));
    memset(block, 1, 128 * MIB);
    take(slot, SLOTS, SLOT, 1);
    size_t huge = number_in("/proc/self/smaps_rollup", "AnonHugePages:") >> 10;
    printf("%zu MiB in huge pages\n", huge);
    CHECK(strcmp(arguments[2], "small") != 0 || huge == 0);
    block = MUST(realloc(block, 65 * MIB));
    for (size_t i = 0; i < SLOTS; i++)
        if (i % KEPT != 0) free(slot[i]);
    /* 65 MiB, a page for each slot that is kept, page tables. */
    const size_t most = 65 * MIB + SLOTS / KEPT * 4096 + 4 * MIB;
    double end = now_seconds() + 20;
    size_t resident, charged;
    do {
        sleep_ms(100);
        resident = resident_bytes() - start;
        charged = number_in(arguments[1], "") - base;
    } while ((resident > most || charged > most) && now_seconds() < end);
    printf("resident %zu, charged %zu, at most %zu KiB\n", resident >> 10, charged >> 10, most >> 10);
    fflush(stdout);
    CHECK(resident <= most && charged <= most);
    free(block);
}

/* Under pressure all free memory is returned at once. The argument is the file that $MEMORY_PRESSURE_WATCH names; here it is ours. All
 * descriptors are closed meanwhile, as a daemon does. Prints after how many milliseconds the memory was returned. */
static void pressed(void) {
    enum { PRESSED_BLOCKS = 64 << 10 };
    void **block = pointers(PRESSED_BLOCKS);
    size_t start = resident_bytes();
    take(block, PRESSED_BLOCKS, 1000, 1);
    give_back(block, PRESSED_BLOCKS);
    sleep_ms(250);
    for (int file = 3; file < 64; file++) close(file);
    CHECK(resident_bytes() > start + 32 * MIB);
    int file = open(arguments[1], O_WRONLY | O_TRUNC);
    CHECK(file == 3);
    static const char text[] = "some avg10=50.00 avg60=0.00 avg300=0.00 total=9000000\n";
    CHECK(write(file, text, sizeof text - 1) == (ssize_t)sizeof text - 1);
    CHECK(close(file) == 0);
    double then = now_seconds();
    while (resident_bytes() > start + 8 * MIB && now_seconds() < then + 5) sleep_ms(5);
    printf("returned after %.0f\n", (now_seconds() - then) * 1000);
    fflush(stdout);
}

CASES(CASE(burst), CASE(held), CASE(two_bursts), CASE(near_limit), CASE(growing), CASE(charge), CASE(pressed))
