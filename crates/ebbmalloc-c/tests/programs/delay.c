/* How long idle pages stay, seen from the program: `buffers` and `server` need theirs again before it is worth
 * returning them and print how many pages were faulted in again, and how many there are in all turns together; `prompt`
 * prints the share of the returned memory that was returned two seconds after a burst; `calm` does little at a constant
 * rate, prints how often the purger woke in some seconds of that, and the share of a burst in the midst of a pause that
 * had come back after two seconds; `idle` says so when its burst is over and does nothing any more. */
#include "check.h"
#include "blocks.h"
#include <dirent.h>
#include <sys/resource.h>

static long minor_faults(void) {
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    return usage.ru_minflt;
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
        char *block = MUST(malloc(bytes));
        touch(block, bytes);
        free(block);
        sleep_ms(50);
    }
    printf("faults %ld of %zu\n", minor_faults() - before, TURNS * bytes / 4096);
}

/* Ten requests a second, each of which allocates its 3 MiB anew. */
static void request(uint64_t *random) {
    enum { BLOCKS = 1500 };
    static void *block[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) {
        size_t size = 16 + next_random(random) % 2700;
        block[i] = MUST(malloc(size));
        memset(block[i], 1, size);
    }
    char *body = MUST(malloc(MIB));
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
    printf("faults %ld of %zu\n", minor_faults() - before, REQUESTS * 3 * MIB / 4096);
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
    for (size_t i = 0; i < THREADS; i++) started(burst, NULL);
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
    printf("share %zu\n", (peak - after_two) * 1000 / (peak - after_all));
}

/* How often the purger's thread went to sleep so far; -1 without one. */
static long purger_sleeps(void) {
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL);
    long sleeps = -1;
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        char path[300], text[4096];
        snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file < 0) continue;
        ssize_t length = read(file, text, sizeof text - 1);
        close(file);
        text[length > 0 ? length : 0] = 0;
        const char *line = strstr(text, "\nvoluntary_ctxt_switches:");
        if (strncmp(text, "Name:\tebb-purger\n", 17) == 0 && line != NULL)
            sleeps = strtol(line + strlen("\nvoluntary_ctxt_switches:"), NULL, 10);
    }
    closedir(tasks);
    return sleeps;
}

/* 50 requests a second that take a buffer and a few blocks each. */
static void serve_calmly(long milliseconds) {
    for (double end = now_seconds() + (double)milliseconds / 1000; now_seconds() < end;) {
        char *buffer = MUST(malloc(128 << 10)), *block[8];
        buffer[0] = 1;
        for (size_t i = 0; i < 8; i++) block[i] = MUST(malloc(100 + 100 * i));
        for (size_t i = 0; i < 8; i++) free(block[i]);
        free(buffer);
        sleep_ms(20);
    }
}

static void calm(void) {
    enum { BLOCKS = 64 << 10 };
    static char *block[BLOCKS];
    /* The pause begins after four ticks, at the third second at the latest, and lasts more than five. */
    serve_calmly(3500);
    long before = purger_sleeps();
    serve_calmly(2500);
    long woke = purger_sleeps() - before;
    CHECK(before >= 0);
    size_t base = resident_bytes();
    for (size_t i = 0; i < BLOCKS; i++) {
        block[i] = MUST(malloc(1 << 10));
        block[i][0] = 1;
    }
    size_t peak = resident_bytes();
    CHECK(peak > base + 60 * MIB);
    for (size_t i = 0; i < BLOCKS; i++) free(block[i]);
    serve_calmly(2200);
    size_t after = resident_bytes(), kept = after > base ? after - base : 0;
    printf("woke %ld share %zu\n", woke, 1000 - kept * 1000 / (peak - base));
}

static void idle(void) {
    run_burst();
    passed();
    for (;;) pause();
}

CASES(CASE(buffers), CASE(server), CASE(prompt), CASE(calm), CASE(idle))
