/* mallinfo2, mallinfo, malloc_info, malloc_stats and malloc_trim tell the truth about this heap:
 * 100 MiB more are 100 MiB more; after free and trim they are gone, other threads' caches
 * included, and trim says 0 when there was nothing to return. */
#include "check.h"
#include "blocks.h"
#include <malloc.h>

static void within(size_t value, size_t wanted, size_t tolerance) {
    if (value + tolerance < wanted || value > wanted + tolerance) {
        char line[160];
        snprintf(line, sizeof line, "%zu KiB, wanted %zu KiB +- %zu\n", value >> 10, wanted >> 10,
                 tolerance >> 10);
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
    for (size_t i = 0; i < 4; i++) CHECK(pthread_create(&thread[i], NULL, free_and_sleep, NULL) == 0);
    pthread_barrier_wait(&step);
    malloc_trim(0);
    size_t after = resident_bytes();
    pthread_barrier_wait(&step);
    for (size_t i = 0; i < 4; i++) CHECK(pthread_join(thread[i], NULL) == 0);
    /* 64 MiB went through the four threads. */
    CHECK(after < before + 6 * MIB);
}

/* Nine tenths of small blocks freed, chosen by a fixed rule: keepcost is what trim returns, and what is free beside
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

int main(void) {
    require_preload();
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
    within((size_t)(unsigned)narrow.uordblks + (size_t)(unsigned)narrow.hblkhd,
           full.uordblks + full.hblkhd, MIB);

    void *large = malloc(100 * MIB);
    CHECK(large != NULL);
    struct mallinfo2 with_large = mallinfo2();
    within(with_large.uordblks + with_large.hblkhd, full.uordblks + full.hblkhd + 100 * MIB, 2 * MIB);
    free(large);

    /* Every other block freed: half the live bytes, all of it still held in pages with a
     * survivor, which no trim can return. */
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
    void *held = malloc(40 * MIB);
    CHECK(held != NULL);
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
    return passed();
}
