/* Arenas that a program makes: used, purged, reset, destroyed. */
#include "control.h"

static void *asks_for_its_arena(void *wanted) {
    unsigned arena = *(unsigned *)wanted;
    SET(unsigned, "thread.arena", arena);
    CHECK(GET(unsigned, "thread.arena") == arena);
    /* What the thread allocates from now on comes from there. */
    void *small = malloc(100), *large = malloc(MIB);
    unsigned found;
    size_t length = sizeof found;
    CHECK(mallctl("arenas.lookup", &found, &length, &small, sizeof small) == 0 && found == arena);
    CHECK(mallctl("arenas.lookup", &found, &length, &large, sizeof large) == 0 && found == arena);
    free(small);
    free(large);
    return NULL;
}

static unsigned arena_of(void *block) {
    unsigned arena;
    size_t length = sizeof arena;
    CHECK(mallctl("arenas.lookup", &arena, &length, &block, sizeof block) == 0);
    CHECK(length == sizeof arena);
    return arena;
}

static void made(void) {
    unsigned automatic = GET(unsigned, "opt.narenas");
    unsigned before = GET(unsigned, "arenas.narenas");
    CHECK(automatic >= 1 && before >= automatic);

    unsigned first = GET(unsigned, "arenas.create");
    unsigned second = GET(unsigned, "arenas.create");
    CHECK(first == before && second == before + 1);
    CHECK(GET(unsigned, "arenas.narenas") == before + 2);
    refresh();
    CHECK(GET(bool, named("arena.%u.initialized", first)));

    unsigned char *held[2][60];
    size_t sizes[60];
    for (int i = 0; i < 60; i++) {
        sizes[i] = 1 + (size_t)i * i * i * 7;
        for (int which = 0; which < 2; which++) {
            unsigned arena = which == 0 ? first : second;
            int flags = MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE;
            held[which][i] = mallocx(sizes[i], flags);
            CHECK(held[which][i] != NULL && arena_of(held[which][i]) == arena);
            CHECK(sallocx(held[which][i], 0) == nallocx(sizes[i], 0));
            fill(held[which][i], sizes[i]);
        }
    }
    /* With zeros, with an alignment. */
    unsigned char *zeros = mallocx(3000, MALLOCX_ARENA(first) | MALLOCX_TCACHE_NONE | MALLOCX_ZERO);
    CHECK(reads_zero(zeros, 0, 3000) && arena_of(zeros) == first);
    free(zeros);
    unsigned char *aligned = mallocx(3000, MALLOCX_ARENA(first) | MALLOCX_TCACHE_NONE | MALLOCX_ALIGN(65536));
    CHECK(is_aligned(aligned, 65536) && arena_of(aligned) == first);
    free(aligned);
    /* realloc within an arena, and into another one. */
    unsigned char *moved = mallocx(500, MALLOCX_ARENA(first) | MALLOCX_TCACHE_NONE);
    memset(moved, 0x29, 500);
    moved = rallocx(moved, 200 * KIB, MALLOCX_ARENA(second) | MALLOCX_TCACHE_NONE);
    CHECK(moved != NULL && arena_of(moved) == second);
    for (int i = 0; i < 500; i++) CHECK(moved[i] == 0x29);
    dallocx(moved, MALLOCX_TCACHE_NONE);
    /* Any way to free does for any block. */
    for (int i = 0; i < 60; i++)
        for (int which = 0; which < 2; which++) {
            CHECK(holds(held[which][i], sizes[i]));
            if (i % 3 == 0) free(held[which][i]);
            else if (i % 3 == 1) dallocx(held[which][i], MALLOCX_TCACHE_NONE);
            else sdallocx(held[which][i], sizes[i], 0);
        }

    /* A thread's arena can be set, and read back; the old one comes with it. */
    unsigned home = GET(unsigned, "thread.arena");
    CHECK(home < before);
    CHECK(SWAP(unsigned, "thread.arena", first) == home);
    CHECK(GET(unsigned, "thread.arena") == first);
    CHECK(SWAP(unsigned, "thread.arena", home) == first);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) threads[i] = started(asks_for_its_arena, i % 2 ? &first : &second);
    join_all(threads, 3);

    /* An arena that is not there. */
    unsigned beyond = before + 2;
    unsigned none = 1000000;
    CHECK(mallctl("thread.arena", NULL, NULL, &none, sizeof none) == EFAULT);
    CHECK(mallctl("thread.arena", NULL, NULL, &beyond, sizeof beyond) == EFAULT);
}

/* Two hundred at a time, a thread or more on each, blocks freed by others. */
#define ARENAS 200
#define USERS 8

static unsigned arenas[ARENAS];

static void *use_many(void *seed) {
    uint64_t random = (uint64_t)(uintptr_t)seed * 77 + 1;
    void *held[64] = {0};
    size_t sizes[64];
    for (int step = 0; step < 8000; step++) {
        unsigned slot = next_random(&random) % 64;
        if (held[slot] != NULL) {
            CHECK(holds(held[slot], sizes[slot]));
            dallocx(held[slot], next_random(&random) % 2 ? 0 : MALLOCX_TCACHE_NONE);
            held[slot] = NULL;
            continue;
        }
        sizes[slot] = 1 + next_random(&random) % (step % 50 == 0 ? 60 * KIB : 600);
        unsigned arena = arenas[next_random(&random) % ARENAS];
        held[slot] = MUST(mallocx(sizes[slot], MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE));
        fill(held[slot], sizes[slot]);
    }
    for (unsigned slot = 0; slot < 64; slot++) free(held[slot]);
    return NULL;
}

static void many(void) {
    for (unsigned i = 0; i < ARENAS; i++) arenas[i] = GET(unsigned, "arenas.create");
    run_threads(USERS, use_many);
    CALL("thread.tcache.flush");
    refresh();
    uint64_t made = 0;
    for (unsigned i = 0; i < ARENAS; i++) {
        CHECK(GET(size_t, named("stats.arenas.%u.small.allocated", arenas[i])) == 0);
        made += GET(uint64_t, named("stats.arenas.%u.small.nmalloc", arenas[i]));
    }
    CHECK(made > 10000);
    /* A child has them all as well. */
    void *block = mallocx(5000, MALLOCX_ARENA(arenas[7]) | MALLOCX_TCACHE_NONE);
    fill(block, 5000);
    pid_t child = forked();
    if (child == 0) {
        RELEASE(block, 5000);
        CALL("thread.tcache.flush");
        for (unsigned i = 0; i < ARENAS; i++) {
            void *one = MUST(mallocx(700, MALLOCX_ARENA(arenas[i]) | MALLOCX_TCACHE_NONE));
            fill(one, 700);
            dallocx(one, MALLOCX_TCACHE_NONE);
            CALL(named("arena.%u.destroy", arenas[i]));
        }
        _exit(0);
    }
    reap(child);
    RELEASE(block, 5000);
    CALL("thread.tcache.flush");
    for (unsigned i = 0; i < ARENAS; i++) CALL(named("arena.%u.destroy", arenas[i]));
}

/* Decay settings: of arenas to come, of one arena; 0 returns at once, -1 never, n in time. */
#define BYTES (32 * MIB)

/* Makes `arena` hold BYTES of freed memory; returns what was resident before that. */
static size_t leave_dirty_in(unsigned arena) {
    size_t before = resident_bytes();
    void *block = MUST(mallocx(BYTES, MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE));
    memset(block, 1, BYTES);
    CHECK(resident_bytes() >= before + BYTES - MIB);
    dallocx(block, MALLOCX_TCACHE_NONE);
    return before;
}

static void decay(void) {
    /* The default of arenas to come, and that of existing ones. */
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

    size_t before = leave_dirty_in(at_once);
    CHECK(resident_bytes() < before + 4 * MIB);

    /* Never by itself, neither in time nor by arena.<i>.decay; at once when it is asked for. */
    before = leave_dirty_in(never);
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

    /* A setting that is written acts on existing memory: 0 on memory that was to stay. */
    before = leave_dirty_in(never);
    SET(ssize_t, named("arena.%u.muzzy_decay_ms", never), 0);
    CHECK(SWAP(ssize_t, named("arena.%u.dirty_decay_ms", never), 0) == -1);
    CHECK(resident_bytes() < before + 4 * MIB);

    /* In time: gone at the latest some ticks after what was set. */
    SET(ssize_t, named("arena.%u.dirty_decay_ms", never), 200);
    before = leave_dirty_in(never);
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
}

/* arena.<i>.purge and its index for all arenas: free memory of every size goes, live memory stays. */
#define BLOCKS 20000

static void *held[BLOCKS];

static size_t leave_dirty(void) {
    for (int i = 0; i < BLOCKS; i++) {
        held[i] = MUST(malloc(2000));
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

static void purged(void) {
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
    CHECK(mallctl(named("arena.%u.purge", GET(unsigned, "arenas.narenas") + 1), NULL, NULL, NULL, 0) == ENOENT);
}

/* arena.<i>.reset and destroy: all of an arena's blocks end at once, its number comes again. */
static unsigned fill_arena(unsigned arena) {
    uint64_t random = 1234;
    for (int i = 0; i < 3000; i++) {
        size_t size = mixed_size(&random);
        void *block = MUST(mallocx(size, MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE));
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

static void reset(void) {
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
        void *block = MUST(mallocx(100 * KIB, MALLOCX_ARENA(one) | MALLOCX_TCACHE_NONE));
        memset(block, 1, 100 * KIB);
        CALL(named("arena.%u.destroy", one));
    }
    CHECK(GET(unsigned, "arenas.narenas") <= count + 1);
}

/* background_thread: switched on and off at run time; returns memory of an idle process. */
static void background(void) {
    bool initial = GET(bool, "background_thread");
    size_t most = GET(size_t, "max_background_threads");
    CHECK(most >= 1 && most == GET(size_t, "opt.max_background_threads"));
    SET(bool, "background_thread", false);
    CHECK(!GET(bool, "background_thread"));
    CHECK(SWAP(bool, "background_thread", true) == false);
    CHECK(GET(bool, "background_thread"));
    SET(bool, "background_thread", true);
    SET(size_t, "max_background_threads", 1);
    CHECK(GET(size_t, "max_background_threads") == 1);

    /* With it on, free memory is returned without a call. */
    SET(ssize_t, "arenas.dirty_decay_ms", 100);
    SET(ssize_t, "arenas.muzzy_decay_ms", 0);
    unsigned arena = GET(unsigned, "arenas.create");
    SET(unsigned, "thread.arena", arena);
    free(malloc(100));
    size_t before = resident_bytes();
    void *block = malloc(40 * MIB);
    memset(block, 1, 40 * MIB);
    CHECK(resident_bytes() >= before + 39 * MIB);
    free(block);
    bool gone = false;
    for (int wait = 0; wait < 200 && !gone; wait++) {
        sleep_ms(50);
        gone = resident_bytes() < before + 4 * MIB;
    }
    CHECK(gone);
    refresh();
    CHECK(GET(size_t, "stats.background_thread.num_threads") <= 4);
    (void)GET(uint64_t, "stats.background_thread.num_runs");
    (void)GET(uint64_t, "stats.background_thread.run_interval");
    SET(bool, "background_thread", initial);
}

CASES(CASE(made), CASE(many), CASE(decay), CASE(purged), CASE(reset), CASE(background))
