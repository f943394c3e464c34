/* Programs whose heap profile is read, and the profile's part of the control tree. */
#include "control.h"
#include <fcntl.h>
#include <stdatomic.h>

/* Known numbers of bytes in functions of known names. */
#define APART __attribute__((noinline))

static void *volatile sink;

static void *filled(void *block, size_t bytes) { return memset(MUST(block), 1, bytes); }

APART void *small_block(void) { return filled(malloc(100), 100); }
APART void *middle_block(void) { return filled(calloc(1, 5000), 5000); }
APART void *tiny_block(void) { return filled(malloc(20), 20); }
APART void *zeroed_block(void) { return filled(calloc(10, 60), 600); }
APART void *aligned_block(void) { return filled(aligned_alloc(128, 900), 900); }
APART void *large_block(void) { return filled(realloc(malloc(10), 200000), 200000); }

static void keep(void *(*make)(void), int count) {
    /* Linked, so that nothing is lost, and nothing else is allocated. */
    for (int i = 0; i < count; i++) {
        void *block = make();
        *(void **)block = sink;
        sink = block;
    }
}

static void *kept[4][50000];

static void *keep_small(void *number) {
    for (int i = 0; i < 50000; i++) kept[(uintptr_t)number - 1][i] = small_block();
    return NULL;
}

/* 20 MB in each of three functions, of sizes far apart. */
static void live(void) {
    keep(small_block, 20000000 / 112);
    keep(middle_block, 20000000 / 5120);
    keep(large_block, 20000000 / 200704);
}

/* The switch that a tool writes to (ebb_stats::profile), as words. */
enum { ASKED = 3, ATTENTION, ANSWERED, BEGAN, STATE, ACTIVE = 1 << 9 };

static volatile uint64_t *find_switch(void) {
    FILE *maps = MUST(fopen("/proc/self/maps", "r"));
    char line[4200], flags[5];
    uintptr_t from, to;
    while (fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx %4s", &from, &to, flags) != 3 || flags[1] != 'w' || !strstr(line, ".so")) continue;
        for (; from < to; from += 64)
            if (!memcmp((void *)from, "ebbprof\0\2", 9)) {
                fclose(maps);
                return (uint64_t *)from;
            }
    }
    return NULL;
}

static void ask(volatile uint64_t *at, uint64_t number, uint64_t lease_ms) {
    at[ASKED] = number << 40 | UINT64_C(12) << 32 | lease_ms;
    at[ATTENTION] = 0;
}

/* A profile that was asked for begins at the next slow operation, and ends with its lease unless it is asked for again. */
static void leased(void) {
    volatile uint64_t *at = find_switch();
    CHECK(at);
    for (int round = 1; round < 3; round++) {
        CHECK((at[STATE] & ACTIVE) == 0);
        ask(at, 2 * round, 1000);
        keep(large_block, 2);
        CHECK(at[ANSWERED] == at[ASKED] && at[STATE] & ACTIVE);
        keep(small_block, 1000);
        usleep(300000);
        ask(at, 2 * round + 1, 1000);
        keep(large_block, 20);
        usleep(300000);
        keep(large_block, 20);
        CHECK(at[STATE] & ACTIVE);
        usleep(1200000);
        /* Each is sampled, and a sample sees the end. */
        keep(large_block, 20);
        CHECK((at[STATE] & ACTIVE) == 0);
    }
    /* Switched off at once. */
    ask(at, 8, 60000);
    keep(large_block, 2);
    ask(at, 9, 0);
    keep(large_block, 2);
    CHECK(at[ANSWERED] == at[ASKED] && (at[STATE] & ACTIVE) == 0);
}

/* A tracer counts itself at the probes from outside, at an address in the file: the argument. The profile begins with it, and
 * ends when it is gone. */
static void traced(void) {
    FILE *maps = MUST(fopen("/proc/self/maps", "r"));
    char line[4200];
    uintptr_t base = 0;
    while (!base && fgets(line, sizeof line, maps))
        if (strstr(line, "libebbmalloc")) base = strtoull(line, NULL, 16);
    fclose(maps);
    volatile uint64_t *at = find_switch();
    CHECK(base && at && (at[STATE] & ACTIVE) == 0);
    int memory = open("/proc/self/mem", O_RDWR);
    off_t place = (off_t)(base + strtoull(arguments[1], NULL, 16));
    uint16_t tracers = 1;
    CHECK(pwrite(memory, &tracers, sizeof tracers, place) == sizeof tracers);
    keep(large_block, 100);
    CHECK(at[STATE] & ACTIVE);
    usleep(1500000);
    keep(large_block, 100);
    CHECK(at[STATE] & ACTIVE);
    tracers = 0;
    CHECK(pwrite(memory, &tracers, sizeof tracers, place) == sizeof tracers);
    keep(large_block, 100);
    CHECK((at[STATE] & ACTIVE) == 0);
    close(memory);
}

/* With profile:on a request from outside changes nothing. */
static void kept_on(void) {
    volatile uint64_t *at = find_switch();
    uint64_t state = at[STATE];
    CHECK(state & ACTIVE && (state & 0xff) == 19);
    keep(large_block, 100);
    ask(at, 2, 1000);
    keep(large_block, 100);
    CHECK(at[ANSWERED] == at[ASKED] && at[STATE] == state);
}

/* One block at a time, allocated and freed, 200 MB in all. */
static void pingpong(void) {
    for (int i = 0; i < 200000000 / 112; i++) free(small_block());
}

/* The same with blocks of four functions in turn, 200 MB of each. */
static void kinds(void) {
    void *(*const make[])(void) = {tiny_block, zeroed_block, aligned_block, middle_block};
    const size_t bytes[] = {32, 640, 1024, 5120};
    for (int kind = 0; kind < 4; kind++)
        for (size_t i = 0; i < 200000000 / bytes[kind]; i++) free(make[kind]());
}

/* Four threads keep 5 MB each, another frees half of it. */
static void threads(void) {
    run_threads(4, keep_small);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 50000; j += 2) free(kept[i][j]);
}

/* The profile's part of the control tree, in a program that starts with prof:true,prof_active:false. Argument: a
 * folder. */
static char path[4096];

/* Live bytes of a thread, or of all, in a dump of now, as sampled. */
static long dumped(const char *thread) {
    SET(const char *, "prof.dump", path);
    FILE *file = fopen(path, "r");
    CHECK(file);
    static char line[4096];
    long bytes = -1;
    while (fgets(line, sizeof line, file) && line[0] != '@') {
        long count, live;
        if (sscanf(line, "  t%*[^:]: %ld: %ld", &count, &live) != 2) continue;
        bool all = !strncmp(line, "  t*", 4);
        if (thread ? !all && strstr(line, thread) != NULL : all) bytes = live;
    }
    fclose(file);
    return bytes;
}

static atomic_int state;

/* Plays with one block while the others look; in state 1 keeps what it allocates. */
static void *player(void *nothing) {
    SET(const char *, "thread.prof.name", "player one");
    for (int i = 0; i < 20000; i++) {
        while (state == 0) free(malloc(1000));
        kept[0][i] = malloc(1000);
    }
    (void)GET(const char *, "thread.prof.name");
    state = 2;
    while (state != 3) free(malloc(1000));
    return nothing;
}

static void control_tree(void) {
    snprintf(path, sizeof path, "%s/dump", arguments[1]);
    CHECK(!GET(bool, "prof.active") && GET(bool, "prof.thread_active_init"));
    void *before = malloc(1 << 22);
    CHECK(dumped(NULL) == 0);

    pthread_t thread = started(player, NULL);
    SET(bool, "prof.active", true);
    CHECK(GET(bool, "prof.active"));
    void *block = malloc(1 << 22);
    CHECK(dumped(NULL) >= 1 << 22);
    /* A thread that was there before, and asks nothing but what its cache has, is sampled too. */
    state = 1;
    while (state != 2) {
    }
    CHECK(dumped("player one") > 0);
    free(block);

    /* One thread alone is left out. */
    SET(bool, "thread.prof.active", false);
    CHECK(!GET(bool, "thread.prof.active"));
    SET(bool, "prof.active", true);
    long live = dumped(NULL);
    block = malloc(1 << 22);
    CHECK(dumped(NULL) < live + (1 << 22));
    free(block);
    SET(bool, "thread.prof.active", true);

    /* A sampled block is as long as any other, and can be made longer and shorter. */
    SET(size_t, "prof.reset", 0);
    CHECK(GET(size_t, "prof.lg_sample") == 0);
    size_t usable = 0;
    for (int i = 0; i < 100; i++) {
        char *small = malloc(100);
        CHECK(malloc_usable_size(small) == 112);
        memset(small, 7, 100);
        small = realloc(small, 3000);
        CHECK(small[0] == 7 && small[99] == 7 && malloc_usable_size(small) == 3072);
        small = realloc(small, 50000);
        CHECK(small[0] == 7 && small[99] == 7 && malloc_usable_size(small) >= 50000);
        small = realloc(small, 100);
        CHECK(small[0] == 7 && small[99] == 7 && malloc_usable_size(small) == 112);
        char *aligned = aligned_alloc(256, 300);
        CHECK((size_t)aligned % 256 == 0);
        char *zero = calloc(10, 10);
        CHECK(reads_zero(zero, 0, 100));
        usable += malloc_usable_size(zero);
        free(small);
        free(aligned);
        free(zero);
    }
    CHECK(usable == 100 * 112);
    /* Everything that was sampled since the reset is gone, but what the player plays with. */
    state = 3;
    join(thread);
    CHECK(dumped(NULL) < 100000);

    const char *nowhere = "/nowhere/at/all";
    CHECK(mallctl("prof.dump", NULL, NULL, &nowhere, sizeof nowhere) != 0);
    free(before);
}

CASES(CASE(live), CASE(leased), CASE(traced), CASE(kept_on), CASE(pingpong), CASE(kinds), CASE(threads), CASE(control_tree))
