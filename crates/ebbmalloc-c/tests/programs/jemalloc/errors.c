/* The error of each misuse of a node, and what is written all the same. */
#include "control.h"

static void lengths(void) {
    /* Too short and too long a place: as much as fits, the count of it, EINVAL. */
    size_t page = GET(size_t, "arenas.page");
    unsigned char place[16];
    memset(place, 0xee, sizeof place);
    size_t length = 2;
    CHECK(mallctl("arenas.page", place, &length, NULL, 0) == EINVAL && length == 2);
    CHECK(memcmp(place, &page, 2) == 0 && place[2] == 0xee);
    length = 16;
    CHECK(mallctl("arenas.page", place, &length, NULL, 0) == EINVAL && length == sizeof page);
    CHECK(memcmp(place, &page, sizeof page) == 0 && place[sizeof page] == 0xee);
    length = 0;
    CHECK(mallctl("arenas.page", place, &length, NULL, 0) == EINVAL && length == 0);
    /* Nowhere to put it: asked for nothing, told nothing. */
    CHECK(mallctl("arenas.page", NULL, NULL, NULL, 0) == 0);
    CHECK(mallctl("arenas.page", place, NULL, NULL, 0) == 0);
    CHECK(mallctl("arenas.page", NULL, &length, NULL, 0) == 0);

    /* New values of the wrong length change nothing. */
    ssize_t before = GET(ssize_t, "arenas.dirty_decay_ms"), wanted = before + 1;
    CHECK(mallctl("arenas.dirty_decay_ms", NULL, NULL, &wanted, sizeof wanted - 1) == EINVAL);
    CHECK(mallctl("arenas.dirty_decay_ms", NULL, NULL, &wanted, sizeof wanted + 1) == EINVAL);
    CHECK(GET(ssize_t, "arenas.dirty_decay_ms") == before);
    bool flag = true;
    CHECK(mallctl("thread.tcache.enabled", NULL, NULL, &flag, 4) == EINVAL);
    CHECK(mallctl("background_thread", NULL, NULL, &flag, 4) == EINVAL);
    unsigned number = 0;
    CHECK(mallctl("thread.arena", NULL, NULL, &number, 8) == EINVAL);
}

static void read_only(void) {
    static const char *const names[] = {"version", "arenas.page", "arenas.narenas", "arenas.nbins",
                                        "arenas.bin.0.size", "arenas.quantum", "opt.narenas",
                                        "opt.dirty_decay_ms", "config.stats", "stats.allocated",
                                        "stats.arenas.0.pactive", "thread.allocated",
                                        "thread.deallocatedp", "arena.0.initialized",
                                        "stats.arenas.0.bins.0.curregs"};
    size_t value;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int error = mallctl(names[i], NULL, NULL, &value, sizeof value);
        if (error != EPERM) node_failed(__FILE__, __LINE__, names[i], error, sizeof value);
        /* A length alone is a value too. */
        error = mallctl(names[i], NULL, NULL, NULL, 8);
        if (error != EPERM) node_failed(__FILE__, __LINE__, names[i], error, 8);
    }
}

static void neither(void) {
    static const char *const names[] = {"arena.0.purge", "arena.0.decay", "thread.idle",
                                        "thread.tcache.flush", "thread.peak.reset"};
    size_t value = 0, length = sizeof value;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int error = mallctl(names[i], &value, &length, NULL, 0);
        if (error != EPERM) node_failed(__FILE__, __LINE__, names[i], error, 0);
        error = mallctl(names[i], NULL, NULL, &value, sizeof value);
        if (error != EPERM) node_failed(__FILE__, __LINE__, names[i], error, 1);
        CALL(names[i]);
    }
    CHECK(mallctl("arena.0.reset", &value, &length, NULL, 0) == EPERM);
    CHECK(mallctl("arena.0.destroy", NULL, NULL, &value, sizeof value) == EPERM);
}

static void absent(void) {
    size_t value, length = sizeof value;
    static const char *const names[] = {"opt", "arenas", "arena.0", "stats.arenas", "no.such.name",
                                        "stats.arenas.0.bins.100000.curregs",
                                        "arenas.lextent.100000.size", "arena.99999.decay"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int error = mallctl(names[i], &value, &length, NULL, 0);
        if (error != ENOENT) node_failed(__FILE__, __LINE__, names[i], error, length);
    }
    /* Profiling that was not switched on is not there. */
    if (!GET(bool, "opt.prof")) {
        bool active = true;
        CHECK(mallctl("prof.active", NULL, NULL, &active, sizeof active) == ENOENT);
        CHECK(mallctl("prof.dump", NULL, NULL, NULL, 0) == ENOENT);
        CHECK(mallctl("prof.reset", NULL, NULL, NULL, 0) == ENOENT);
        CHECK(mallctl("thread.prof.name", &value, &length, NULL, 0) == ENOENT);
    }
}

static void wrong_values(void) {
    size_t value;
    unsigned arena = GET(unsigned, "arenas.narenas");
    CHECK(mallctl("thread.arena", NULL, NULL, &arena, sizeof arena) == EFAULT);
    value = 1000000;
    CHECK(mallctl("max_background_threads", NULL, NULL, &value, sizeof value) == EINVAL);
    const char *unknown = "sideways", *known = "disabled";
    CHECK(mallctl("arena.0.dss", NULL, NULL, &unknown, sizeof unknown) == EINVAL);
    CHECK(mallctl("arena.0.dss", NULL, NULL, &known, sizeof known) == 0);
    CHECK(strcmp(GET(const char *, "arena.0.dss"), "disabled") == 0);
    CHECK(mallctl("experimental.utilization.query", NULL, NULL, &value, sizeof value) == EINVAL);
}

int main(void) {
    require_preload();
    lengths();
    read_only();
    neither();
    absent();
    wrong_values();
    return passed();
}
