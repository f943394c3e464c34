/* arena.<i>.purge and its index for all arenas: free memory of every size goes, live memory stays. */
#include "control.h"

/* Keeps free memory until it is purged. */
const char *malloc_conf = "dirty_decay_ms:-1,muzzy_decay_ms:-1";

#define BLOCKS 20000

static void *held[BLOCKS];

static size_t leave_dirty(void) {
    for (int i = 0; i < BLOCKS; i++) {
        held[i] = malloc(2000);
        CHECK(held[i] != NULL);
        memset(held[i], 7, 2000);
    }
    size_t full = resident_bytes();
    void *large = malloc(16 * MIB);
    memset(large, 7, 16 * MIB);
    for (int i = 0; i < BLOCKS; i++) free(held[i]);
    free(large);
    CALL("thread.tcache.flush");
    return full;
}

int main(void) {
    require_preload();
    unsigned char *live = malloc(5 * MIB);
    memset(live, 9, 5 * MIB);
    size_t start = resident_bytes();

    size_t full = leave_dirty();
    CHECK(full >= start + BLOCKS * 1900);
    CHECK(resident_bytes() >= full - 2 * MIB);
    refresh();
    size_t page = GET(size_t, "arenas.page");
    CHECK(GET(size_t, named("stats.arenas.%u.pdirty", MALLCTL_ARENAS_ALL)) * page > 32 * MIB);
    CALL(named("arena.%u.purge", MALLCTL_ARENAS_ALL));
    CHECK(resident_bytes() < start + 8 * MIB);
    refresh();
    CHECK(GET(size_t, named("stats.arenas.%u.pdirty", MALLCTL_ARENAS_ALL)) * page < 2 * MIB);
    CHECK(GET(uint64_t, named("stats.arenas.%u.dirty_purged", MALLCTL_ARENAS_ALL)) * page > 32 * MIB);
    CHECK(GET(uint64_t, named("stats.arenas.%u.dirty_npurge", MALLCTL_ARENAS_ALL)) > 0);
    CHECK(GET(uint64_t, named("stats.arenas.%u.dirty_nmadvise", MALLCTL_ARENAS_ALL)) > 0);

    /* The old name of all: the number of arenas. */
    leave_dirty();
    CALL(named("arena.%u.purge", GET(unsigned, "arenas.narenas")));
    CHECK(resident_bytes() < start + 8 * MIB);

    for (size_t i = 0; i < 5 * MIB; i += 100) CHECK(live[i] == 9);
    free(live);
    size_t length = sizeof page;
    CHECK(mallctl("arena.0.purge", &page, &length, NULL, 0) == EPERM);
    CHECK(mallctl("arena.0.purge", NULL, NULL, &page, sizeof page) == EPERM);
    CHECK(mallctl("arena.0.decay", &page, &length, NULL, 0) == EPERM);
    CHECK(mallctl(named("arena.%u.purge", GET(unsigned, "arenas.narenas") + 1), NULL, NULL, NULL, 0) ==
          ENOENT);
    return passed();
}
