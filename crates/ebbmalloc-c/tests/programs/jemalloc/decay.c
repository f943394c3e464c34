/* Decay settings: of arenas to come, of one arena; 0 returns at once, -1 never, n in time. */
#include "control.h"

#define BYTES (32 * MIB)

/* Makes `arena` hold BYTES of freed memory; returns what was resident before that. */
static size_t leave_dirty(unsigned arena) {
    size_t before = resident_bytes();
    void *block = mallocx(BYTES, MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE);
    CHECK(block != NULL);
    memset(block, 1, BYTES);
    CHECK(resident_bytes() >= before + BYTES - MIB);
    dallocx(block, MALLOCX_TCACHE_NONE);
    return before;
}

int main(void) {
    require_preload();
    /* The default of arenas to come, and that of those that are. */
    ssize_t old = SWAP(ssize_t, "arenas.dirty_decay_ms", 0);
    CHECK(old >= -1 && old == GET(ssize_t, "opt.dirty_decay_ms"));
    SET(ssize_t, "arenas.muzzy_decay_ms", 0);
    unsigned at_once = GET(unsigned, "arenas.create");
    CHECK(GET(ssize_t, named("arena.%u.dirty_decay_ms", at_once)) == 0);
    SET(ssize_t, "arenas.dirty_decay_ms", -1);
    SET(ssize_t, "arenas.muzzy_decay_ms", -1);
    unsigned never = GET(unsigned, "arenas.create");
    CHECK(GET(ssize_t, named("arena.%u.dirty_decay_ms", never)) == -1);
    CHECK(GET(ssize_t, named("arena.%u.muzzy_decay_ms", never)) == -1);
    CHECK(GET(ssize_t, named("arena.%u.dirty_decay_ms", at_once)) == 0);
    SET(ssize_t, "arenas.dirty_decay_ms", old);
    CHECK(GET(ssize_t, "arenas.dirty_decay_ms") == old);

    size_t before = leave_dirty(at_once);
    CHECK(resident_bytes() < before + 4 * MIB);

    /* Never by itself, neither in time nor by arena.<i>.decay; at once when it is asked for. */
    before = leave_dirty(never);
    sleep_ms(1500);
    CALL(named("arena.%u.decay", never));
    CHECK(resident_bytes() >= before + BYTES - MIB);
    refresh();
    size_t page = GET(size_t, "arenas.page");
    CHECK(GET(size_t, named("stats.arenas.%u.pdirty", never)) * page >= BYTES);
    CALL(named("arena.%u.purge", never));
    CHECK(resident_bytes() < before + 4 * MIB);
    refresh();
    CHECK(GET(size_t, named("stats.arenas.%u.pdirty", never)) == 0);

    /* A setting that is written acts on what is there: 0 on memory that was to stay. */
    before = leave_dirty(never);
    SET(ssize_t, named("arena.%u.muzzy_decay_ms", never), 0);
    CHECK(SWAP(ssize_t, named("arena.%u.dirty_decay_ms", never), 0) == -1);
    CHECK(resident_bytes() < before + 4 * MIB);

    /* In time: gone at the latest some ticks after what was set. */
    SET(ssize_t, named("arena.%u.dirty_decay_ms", never), 200);
    before = leave_dirty(never);
    bool gone = false;
    for (int wait = 0; wait < 100 && !gone; wait++) {
        sleep_ms(50);
        CALL(named("arena.%u.decay", never));
        gone = resident_bytes() < before + 4 * MIB;
    }
    CHECK(gone);

    /* Settings that are none. */
    ssize_t bad = -2;
    CHECK(mallctl(named("arena.%u.dirty_decay_ms", never), NULL, NULL, &bad, sizeof bad) == EFAULT);
    CHECK(mallctl("arenas.dirty_decay_ms", NULL, NULL, &bad, sizeof bad) == EFAULT);
    CHECK(mallctl("arenas.muzzy_decay_ms", NULL, NULL, &bad, sizeof bad) == EFAULT);
    int narrow = 5;
    CHECK(mallctl("arenas.dirty_decay_ms", NULL, NULL, &narrow, sizeof narrow) == EINVAL);
    CHECK(GET(ssize_t, named("arena.%u.dirty_decay_ms", never)) == 200);
    return passed();
}
