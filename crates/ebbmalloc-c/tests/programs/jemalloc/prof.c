/* Heap profiling: switched on and off, per thread, dumped by hand, reset. Run in a folder of its own
 * with MALLOC_CONF=prof:true,prof_active:false,lg_prof_sample:12,prof_prefix:heap */
#include "control.h"

static char profile[4 << 20];

static const char *dump(void) {
    const char *name = "wanted.heap";
    SET(const char *, "prof.dump", name);
    FILE *file = fopen(name, "r");
    CHECK(file != NULL);
    size_t length = fread(profile, 1, sizeof profile - 1, file);
    CHECK(length > 0 && length < sizeof profile - 1 && fclose(file) == 0);
    profile[length] = 0;
    return profile;
}

/* Live sampled blocks and bytes, from the profile's first summary. */
static void totals(unsigned long *objects, unsigned long *bytes) {
    const char *text = dump();
    unsigned long rate;
    CHECK(sscanf(text, "heap_v2/%lu", &rate) == 1 && rate >= 1);
    const char *line = strstr(text, "t*: ");
    CHECK(line != NULL && sscanf(line, "t*: %lu: %lu [", objects, bytes) == 2);
    CHECK(strstr(text, "MAPPED_LIBRARIES:") != NULL);
}

static __attribute__((noinline)) void *allocates(size_t size) {
    void *block = malloc(size);
    CHECK(block != NULL);
    memset(block, 1, size);
    return block;
}

static void *thread_with_a_name(void *nothing) {
    SET(const char *, "thread.prof.name", "worker seven");
    CHECK(strcmp(GET(const char *, "thread.prof.name"), "worker seven") == 0);
    void *block = allocates(5 * MIB);
    CHECK(strstr(dump(), "worker seven") != NULL);
    free(block);
    return nothing;
}

#define BLOCKS 2000

/* Blocks of an arena that the program made, small and large, are sampled; a reset takes them all out. */
static void arena_is_sampled(void) {
    unsigned arena = GET(unsigned, "arenas.create");
    int flags = MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE;
    unsigned long objects, bytes, before;
    totals(&before, &bytes);
    void *last = NULL;
    for (int i = 0; i < BLOCKS; i++) {
        CHECK((last = mallocx(i % 2 ? 8000 : 100, flags)) != NULL);
        memset(last, 2, 100);
    }
    CHECK(malloc_usable_size(last) == nallocx(8000, 0));
    CHECK((last = rallocx(last, 100000, flags)) != NULL);
    totals(&objects, &bytes);
    /* Of the larger half about 86 %, of the other one in 37, for which jemalloc counts more. */
    CHECK(objects > before + BLOCKS / 2 * 3 / 4 && objects < before + BLOCKS * 3 / 4);
    dallocx(last, MALLOCX_TCACHE_NONE);
    CALL(named("arena.%u.reset", arena));
    totals(&objects, &bytes);
    CHECK(objects <= before + 5);
    CALL(named("arena.%u.destroy", arena));
}

int main(void) {
    require_preload();
    CHECK(GET(bool, "opt.prof") && !GET(bool, "opt.prof_active"));
    CHECK(GET(size_t, "prof.lg_sample") == 12 && GET(size_t, "opt.lg_prof_sample") == 12);
    CHECK(!GET(bool, "prof.active") && GET(bool, "prof.thread_active_init"));

    unsigned long objects, bytes;
    static void *held[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) held[i] = allocates(3000);
    for (int i = 0; i < BLOCKS; i++) free(held[i]);
    totals(&objects, &bytes);
    CHECK(objects == 0 && bytes == 0);

    SET(bool, "prof.active", true);
    for (int i = 0; i < BLOCKS; i++) held[i] = allocates(8000);
    totals(&objects, &bytes);
    /* One in exp(-8000/4096) is missed: about 86 % of 2000 are seen. */
    CHECK(objects > BLOCKS * 3 / 4 && objects <= BLOCKS + 10);
    CHECK(bytes / objects >= 8000 && bytes / objects < 9000);
    /* Stacks are there, with the program's own addresses. */
    CHECK(strstr(profile, "\n@ 0x") != NULL);
    /* What is sampled is freed and resized like any other. */
    for (int i = 0; i < BLOCKS; i += 2) {
        CHECK(malloc_usable_size(held[i]) == nallocx(8000, 0));
        held[i] = realloc(held[i], 16000);
        CHECK(held[i] != NULL);
    }
    for (int i = 0; i < BLOCKS; i++) {
        if (i % 2) sdallocx(held[i], 8000, 0);
        else free(held[i]);
    }
    totals(&objects, &bytes);
    CHECK(objects < 20);

    arena_is_sampled();

    /* Not in a thread that opted out. */
    CHECK(SWAP(bool, "thread.prof.active", false) == true);
    void *block = allocates(20 * MIB);
    totals(&objects, &bytes);
    CHECK(bytes < MIB);
    free(block);
    SET(bool, "thread.prof.active", true);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, thread_with_a_name, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);

    /* A reset forgets, and may set the rate. */
    block = allocates(20 * MIB);
    totals(&objects, &bytes);
    CHECK(bytes >= 20 * MIB);
    SET(size_t, "prof.reset", 14);
    CHECK(GET(size_t, "prof.lg_sample") == 14);
    totals(&objects, &bytes);
    CHECK(bytes == 0);
    free(block);
    CHECK(SWAP(bool, "prof.thread_active_init", false) == true);
    SET(bool, "prof.thread_active_init", true);
    CHECK(!SWAP(bool, "prof.gdump", false));
    CHECK(GET(uint64_t, "prof.interval") == 0);

    /* Without a name, the dump makes one of the prefix, the process and a number. */
    SET(bool, "prof.active", false);
    CALL("prof.dump");
    char name[64];
    snprintf(name, sizeof name, "heap.%d.0.m0.heap", (int)getpid());
    CHECK(access(name, R_OK) == 0);
    /* A place that cannot be written. */
    const char *nowhere = "/no such folder/heap";
    CHECK(mallctl("prof.dump", NULL, NULL, &nowhere, sizeof nowhere) == EFAULT);
    return passed();
}
