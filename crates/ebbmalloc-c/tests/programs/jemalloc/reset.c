/* arena.<i>.reset and destroy: all of an arena's blocks end at once, its number comes again. */
#include "control.h"

static unsigned fill_arena(unsigned arena) {
    uint64_t random = 1234;
    for (int i = 0; i < 3000; i++) {
        size_t size = mixed_size(&random);
        void *block = mallocx(size, MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE);
        CHECK(block != NULL);
        memset(block, 5, size);
        if (i % 3 == 0) dallocx(block, MALLOCX_TCACHE_NONE);
    }
    refresh();
    CHECK(GET(size_t, named("stats.arenas.%u.small.allocated", arena)) > 0);
    CHECK(GET(size_t, named("stats.arenas.%u.large.allocated", arena)) > 0);
    return arena;
}

static void is_empty(unsigned arena) {
    refresh();
    CHECK(GET(size_t, named("stats.arenas.%u.small.allocated", arena)) == 0);
    CHECK(GET(size_t, named("stats.arenas.%u.large.allocated", arena)) == 0);
    CHECK(GET(size_t, named("stats.arenas.%u.pactive", arena)) == 0);
}

int main(void) {
    require_preload();
    unsigned arena = GET(unsigned, "arenas.create"), other = GET(unsigned, "arenas.create");
    fill_arena(other);
    for (int round = 0; round < 3; round++) {
        fill_arena(arena);
        CALL(named("arena.%u.reset", arena));
        is_empty(arena);
        CHECK(GET(bool, named("arena.%u.initialized", arena)));
    }
    /* The other one has noticed nothing. */
    CHECK(GET(size_t, named("stats.arenas.%u.small.allocated", other)) > 0);

    fill_arena(arena);
    size_t full = resident_bytes();
    unsigned count = GET(unsigned, "arenas.narenas");
    CALL(named("arena.%u.destroy", arena));
    CHECK(resident_bytes() + 4 * MIB < full);
    CHECK(!GET(bool, named("arena.%u.initialized", arena)));
    CHECK(GET(bool, named("arena.%u.initialized", MALLCTL_ARENAS_DESTROYED)));
    CHECK(GET(unsigned, "arenas.narenas") == count);
    CHECK(mallctl(named("arena.%u.reset", arena), NULL, NULL, NULL, 0) == EFAULT);
    CHECK(mallctl(named("arena.%u.destroy", arena), NULL, NULL, NULL, 0) == EFAULT);
    /* The destroyed arenas are counted together. */
    refresh();
    CHECK(GET(uint64_t, named("stats.arenas.%u.small.nmalloc", MALLCTL_ARENAS_DESTROYED)) > 0);

    unsigned again = GET(unsigned, "arenas.create");
    CHECK(again == arena && GET(unsigned, "arenas.narenas") == count);
    refresh();
    is_empty(again);
    fill_arena(again);
    CALL(named("arena.%u.destroy", again));
    CALL(named("arena.%u.destroy", other));

    /* The automatic arenas cannot be reset, nor one that a thread uses be destroyed. */
    CHECK(mallctl("arena.0.reset", NULL, NULL, NULL, 0) == EFAULT);
    CHECK(mallctl("arena.0.destroy", NULL, NULL, NULL, 0) == EFAULT);
    unsigned used = GET(unsigned, "arenas.create");
    unsigned home = SWAP(unsigned, "thread.arena", used);
    free(malloc(10));
    CHECK(mallctl(named("arena.%u.destroy", used), NULL, NULL, NULL, 0) == EFAULT);
    SET(unsigned, "thread.arena", home);
    CALL("thread.tcache.flush"); /* It holds blocks of the arena that is to go. */
    bool flag = true;
    CHECK(mallctl(named("arena.%u.reset", used), NULL, NULL, &flag, sizeof flag) == EPERM);
    CALL(named("arena.%u.destroy", used));

    /* Many arenas one after the other do not use up the numbers or the memory. */
    for (int i = 0; i < 300; i++) {
        unsigned one = GET(unsigned, "arenas.create");
        void *block = mallocx(100 * KIB, MALLOCX_ARENA(one) | MALLOCX_TCACHE_NONE);
        CHECK(block != NULL);
        memset(block, 1, 100 * KIB);
        CALL(named("arena.%u.destroy", one));
    }
    CHECK(GET(unsigned, "arenas.narenas") <= count + 1);
    return passed();
}
