/* What the allocator says of itself, by mallinfo and its kin and by mallctl. */
#include "control.h"
#include "blocks.h"
#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>

/* mallinfo2, mallinfo, malloc_info, malloc_stats and malloc_trim tell the truth about this heap: 100 MiB more are 100
 * MiB more; after free and trim they are gone, other threads' caches included, and trim says 0 when there was nothing
 * to return. */
static void within(size_t value, size_t wanted, size_t tolerance) {
    if (value + tolerance < wanted || value > wanted + tolerance) {
        char line[160];
        snprintf(line, sizeof line, "%zu KiB, wanted %zu KiB +- %zu\n", value >> 10, wanted >> 10, tolerance >> 10);
        say(line);
        CHECK(!"figure out of bounds");
    }
}

static pthread_barrier_t step;

/* Fills its cache with freed blocks and then sleeps on them. */
static void *free_and_sleep(void *unused) {
    enum { BLOCKS = 16 << 10 };
    void **block = pointers(BLOCKS);
    take(block, BLOCKS, 1, 2048);
    give_back(block, BLOCKS);
    CHECK(munmap(block, BLOCKS * sizeof *block) == 0);
    pthread_barrier_wait(&step);
    pthread_barrier_wait(&step);
    return unused;
}

static void trim_reaches_sleeping_threads(void) {
    size_t before = resident_bytes();
    pthread_t thread[4];
    CHECK(pthread_barrier_init(&step, NULL, 5) == 0);
    for (size_t i = 0; i < 4; i++) thread[i] = started(free_and_sleep, NULL);
    pthread_barrier_wait(&step);
    malloc_trim(0);
    size_t after = resident_bytes();
    pthread_barrier_wait(&step);
    join_all(thread, 4);
    /* 64 MiB went through the four threads. */
    CHECK(after < before + 6 * MIB);
}

/* Nine tenths of small blocks freed, chosen by a fixed rule: keepcost is what trim returns, and free memory next to
 * survivors is not in it. Tried again where the purger was quicker. */
static void keepcost_is_what_trim_returns(size_t bytes) {
    enum { TURNS = 5 };
    size_t blocks = 40 * MIB / bytes;
    void **block = pointers(blocks);
    for (int turn = 1;; turn++) {
        take(block, blocks, bytes, 1);
        unsigned long long state = 1;
        for (size_t i = 0; i < blocks; i++) {
            state = state * 6364136223846793005ull + 1442695040888963407ull;
            if ((state >> 33) % 10 == 0) continue;
            free(block[i]);
            block[i] = NULL;
        }
        struct mallinfo2 info = mallinfo2();
        size_t before = resident_bytes();
        malloc_trim(0);
        size_t returned = before - resident_bytes();
        give_back(block, blocks);
        CHECK(info.fordblks > 30 * MIB);
        if (info.keepcost < returned + MIB && returned < info.keepcost + MIB) break;
        if (turn == TURNS) within(info.keepcost, returned, MIB);
    }
    CHECK(munmap(block, blocks * sizeof *block) == 0);
}

static void libc_figures(void) {
    enum { BLOCKS = 100 << 10 };
    void **block = pointers(BLOCKS);
    struct mallinfo2 start = mallinfo2();
    size_t resident_start = resident_bytes();
    take(block, BLOCKS, 1024, 1);
    struct mallinfo2 full = mallinfo2();
    size_t resident_full = resident_bytes();
    within(full.uordblks + full.hblkhd - start.uordblks - start.hblkhd, 100 * MIB, 2 * MIB);
    CHECK(full.arena + full.hblkhd >= full.uordblks);
    struct mallinfo narrow = mallinfo();
    within((size_t)(unsigned)narrow.uordblks + (size_t)(unsigned)narrow.hblkhd, full.uordblks + full.hblkhd, MIB);

    void *large = MUST(malloc(100 * MIB));
    struct mallinfo2 with_large = mallinfo2();
    within(with_large.uordblks + with_large.hblkhd, full.uordblks + full.hblkhd + 100 * MIB, 2 * MIB);
    free(large);

    /* Every other block freed: half the live bytes, all of it still held in pages with a survivor, which no trim can
     * return. */
    for (size_t i = 0; i < BLOCKS; i += 2) {
        free(block[i]);
        block[i] = NULL;
    }
    struct mallinfo2 half = mallinfo2();
    within(half.uordblks + half.hblkhd - start.uordblks - start.hblkhd, 50 * MIB, 2 * MIB);
    malloc_trim(0); /* the large block, which the purger may have returned already */
    struct mallinfo2 pinned = mallinfo2();
    within(pinned.fordblks, 50 * MIB, 4 * MIB);
    CHECK(pinned.keepcost < MIB);
    give_back(block, BLOCKS);
    struct mallinfo2 freed = mallinfo2();
    within(freed.uordblks + freed.hblkhd, start.uordblks + start.hblkhd, 2 * MIB);
    size_t before_trim = resident_bytes();
    int returned = malloc_trim(0);
    size_t after_trim = resident_bytes();
    /* The purger may have been quicker, then there is nothing left for trim to return. */
    if (before_trim > resident_start + 20 * MIB) CHECK(returned == 1);
    CHECK(resident_full > resident_start + 90 * MIB);
    CHECK(after_trim < resident_start + 4 * MIB);
    CHECK(mallinfo2().fordblks < 8 * MIB);
    malloc_trim(0);
    CHECK(malloc_trim(0) == 0);
    trim_reaches_sleeping_threads();
    keepcost_is_what_trim_returns(64);
    keepcost_is_what_trim_returns(1000);

    /* malloc_info writes XML with figures of this heap; anything but options 0 is refused. */
    void *held = MUST(malloc(40 * MIB));
    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    CHECK(stream != NULL);
    CHECK(malloc_info(1, stream) != 0);
    CHECK(malloc_info(0, stream) == 0);
    CHECK(fclose(stream) == 0);
    CHECK(strncmp(text, "<malloc version=\"", 17) == 0);
    CHECK(strstr(text, "</malloc>") != NULL);
    /* The largest number in it counts those 40 MiB. */
    unsigned long long most = 0;
    for (char *at = text; *at != 0;) {
        if (*at < '0' || *at > '9') {
            at++;
            continue;
        }
        unsigned long long number = strtoull(at, &at, 10);
        if (number > most) most = number;
    }
    CHECK(most >= 40 * MIB);
    free(text);
    malloc_stats(); /* on stderr; the harness reads it */
    free(held);

    CHECK(mallopt(M_ARENA_MAX, 1) == 1);
    CHECK(mallopt(M_MMAP_THRESHOLD, 1 << 20) == 1);
    CHECK(mallopt(M_TRIM_THRESHOLD, 1 << 20) == 1);
    CHECK(mallopt(-987654, 3) == 0);
}

/* What settings change, as numbers to compare: prints `name value` lines. */
extern void *_Znwm(size_t) __attribute__((weak));

/* The flag of /proc/self/smaps in the mapping that holds `address`. */
static bool has_flag(const void *address, const char *flag) {
    FILE *smaps = fopen("/proc/self/smaps", "r");
    CHECK(smaps != NULL);
    char line[512];
    bool inside = false, found = false;
    while (fgets(line, sizeof line, smaps) != NULL) {
        unsigned long start, end;
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
            inside = (unsigned long)address >= start && (unsigned long)address < end;
        if (inside && strncmp(line, "VmFlags:", 8) == 0 && strstr(line, flag) != NULL) found = true;
    }
    fclose(smaps);
    return found;
}

static void caches(void) {
    void *small[100], *large[20];
    for (int i = 0; i < 100; i++) small[i] = malloc(48);
    for (int i = 0; i < 20; i++) large[i] = malloc(20000);
    for (int i = 0; i < 100; i++) free(small[i]);
    for (int i = 0; i < 20; i++) free(large[i]);
    refresh();
    printf("cached %zu\n", GET(size_t, "stats.arenas.4096.tcache_bytes"));
    printf("most %zu\n", GET(size_t, "thread.tcache.max"));
}

static void oversize(void) {
    void *block = malloc(20 * MIB);
    memset(block, 1, 20 * MIB);
    free(block);
    refresh();
    printf("resident %zu\n", GET(size_t, "stats.resident"));
}

/* The same in small blocks. */
static void crumbs(void) {
    static void *blocks[20000];
    for (int i = 0; i < 20000; i++) memset(blocks[i] = malloc(1024), 1, 1024);
    for (int i = 0; i < 20000; i++) free(blocks[i]);
    refresh();
    printf("resident %zu\n", GET(size_t, "stats.resident"));
}

/* Anonymous memory that is resident, as the kernel counts it. */
static size_t anonymous_bytes(void) {
    FILE *status = fopen("/proc/self/status", "r");
    CHECK(status != NULL);
    char line[256];
    size_t kib = 0;
    while (fgets(line, sizeof line, status) != NULL)
        if (sscanf(line, "RssAnon: %zu", &kib) == 1) break;
    fclose(status);
    return kib * 1024;
}

/* Many sizes live, as many freed among them, at rest: what the allocator says of itself, and what the kernel says of
 * the process beyond what it had before. */
static void truth(void) {
    enum { BLOCKS = 60000 };
    static void *block[BLOCKS];
    memset(block, 1, sizeof block);
    refresh();
    anonymous_bytes();
    size_t ours = GET(size_t, "stats.resident"), kernels = anonymous_bytes();
    for (int i = 0; i < BLOCKS; i++) {
        size_t size = i % 500 == 0 ? 100000 : 64 + (size_t)i * 7 % 3000;
        block[i] = malloc(size);
        memset(block[i], 1, size);
    }
    for (int i = 0; i < BLOCKS; i++)
        if (i % 3 == 0 || i > BLOCKS / 2) free(block[i]);
    sleep_ms(4000);
    refresh();
    printf("ours %zu\n", GET(size_t, "stats.resident") - ours);
    printf("kernels %zu\n", anonymous_bytes() - kernels);
}

static void retained(void) {
    oversize();
    sleep_ms(3500);
    refresh();
    printf("retained %zu\n", GET(size_t, "stats.retained"));
}

static void arenas(void) {
    printf("arenas %u\n", GET(unsigned, "arenas.narenas"));
    refresh();
    for (unsigned i = 0; i < GET(unsigned, "arenas.narenas"); i++)
        if (GET(unsigned, named("stats.arenas.%u.nthreads", i)) > 0) printf("own %u\n", i);
}

static void huge(void) {
    void *block = malloc(MIB);
    printf("refused %d\n", has_flag(block, " nh"));
    printf("wanted %d\n", has_flag(block, " hg"));
    uint64_t *counter = GET(uint64_t *, "thread.allocatedp"); /* lies in metadata */
    printf("metadata_refused %d\n", has_flag(counter, " nh"));
    printf("metadata_wanted %d\n", has_flag(counter, " hg"));
}

static void delay(void) { printf("delay %zu\n", GET(size_t, "arena.0.dirty_decay_ms")); }

static void much(void) {
    for (int i = 0; i < 100; i++) free(malloc(1000));
}

static void exhaust(void) { CHECK(malloc((size_t)1 << 62) == NULL); }

static void exhaust_new(void) { (void)_Znwm((size_t)1 << 62); }

CASES(CASE(libc_figures), CASE(caches), CASE(oversize), CASE(crumbs), CASE(retained), CASE(truth), CASE(arenas),
      CASE(delay), CASE(huge), CASE(much), CASE(exhaust), CASE(exhaust_new))
