/* Heap profiling, in a folder of its own. */
#include "control.h"

/* Switched on and off, per thread, dumped by hand, reset. */
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
    void *block = MUST(malloc(size));
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
        last = MUST(mallocx(i % 2 ? 8000 : 100, flags));
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

static void controlled(void) {
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
        held[i] = MUST(realloc(held[i], 16000));
    }
    for (int i = 0; i < BLOCKS; i++)
        if (i % 2) sdallocx(held[i], 8000, 0);
        else free(held[i]);
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
    join(started(thread_with_a_name, NULL));

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
}

typedef void (*walk_stack)(void **frames, unsigned *depth, unsigned most);
typedef void (*after_dump)(const char *file);

static walk_stack default_walk;
/* The compiler thinks that malloc does not come here. */
static __thread volatile bool marks;
static volatile int walks, dumps;
static char dumped[256];

/* Blocks that the program marks come from a stack that no other block has. */
static void walk(void **frames, unsigned *depth, unsigned most) {
    walks = walks + 1;
    CHECK(most >= 2);
    if (marks) {
        frames[0] = (void *)0x1234567;
        frames[1] = (void *)0x7654321;
        *depth = 2;
    } else {
        default_walk(frames, depth, most);
        CHECK(*depth > 0 && *depth <= most);
    }
}

static void listen(const char *file) {
    dumps = dumps + 1;
    CHECK(strlen(file) < sizeof dumped);
    strcpy(dumped, file);
}

static bool file_has(const char *file, const char *text) {
    static char content[1 << 20];
    int opened = open(file, O_RDONLY);
    CHECK(opened >= 0);
    size_t length = 0;
    ssize_t got;
    while ((got = read(opened, content + length, sizeof content - 1 - length)) > 0) length += (size_t)got;
    close(opened);
    content[length] = 0;
    return strstr(content, text) != NULL;
}

static void hooks(void) {
    const char *walking = "experimental.hooks.prof_backtrace";
    const char *listening = "experimental.hooks.prof_dump";
    CHECK(mallctl(walking, NULL, NULL, NULL, 0) == EINVAL);
    CHECK(mallctl(listening, NULL, NULL, NULL, 0) == EINVAL);
    walk_stack none = NULL, own = walk;
    CHECK(mallctl(walking, NULL, NULL, &none, sizeof none) == EINVAL);
    CHECK(mallctl(walking, NULL, NULL, &own, sizeof own - 1) == EINVAL);
    CHECK(mallctl(listening, NULL, NULL, &own, sizeof own - 1) == EINVAL);

    default_walk = GET(walk_stack, walking);
    CHECK(default_walk != NULL);
    CHECK(SWAP(walk_stack, walking, own) == default_walk);
    CHECK(GET(walk_stack, walking) == own);
    void *volatile plain = malloc(3000);
    CHECK(walks == 1);
    marks = true;
    void *volatile marked = malloc(5000);
    marks = false;
    CHECK(walks == 2);

    CHECK(GET(after_dump, listening) == NULL);
    SET(after_dump, listening, listen);
    const char *file = "by-name.heap";
    SET(const char *, "prof.dump", file);
    CHECK(dumps == 1 && strcmp(dumped, file) == 0);
    CHECK(file_has(file, "@ 0x1234567 0x7654321\n"));
    SET(const char *, "prof.dump", NULL);
    CHECK(dumps == 2 && strncmp(dumped, "heap.", 5) == 0);
    CHECK(file_has(dumped, "@ 0x1234567 0x7654321\n"));
    after_dump deaf = NULL;
    CHECK(SWAP(after_dump, listening, deaf) == listen);
    SET(const char *, "prof.dump", file);
    CHECK(dumps == 2);

    SET(walk_stack, walking, default_walk);
    int before = walks;
    free(plain);
    plain = malloc(3000);
    CHECK(walks == before);
    free(plain);
    free(marked);
}

CASES(CASE(controlled), CASE(hooks))
