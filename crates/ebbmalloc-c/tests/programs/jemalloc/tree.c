/* The control tree: names, numbers, types, errors, settings. */
#include "control.h"

/* The error of each misuse of a node, and what is written all the same. */
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
    static const char *const names[] = {"version",
                                        "arenas.page",
                                        "arenas.narenas",
                                        "arenas.nbins",
                                        "arenas.bin.0.size",
                                        "arenas.quantum",
                                        "opt.narenas",
                                        "opt.dirty_decay_ms",
                                        "config.stats",
                                        "stats.allocated",
                                        "stats.arenas.0.pactive",
                                        "thread.allocated",
                                        "thread.deallocatedp",
                                        "arena.0.initialized",
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
    static const char *const names[] = {"arena.0.purge", "arena.0.decay", "thread.idle", "thread.tcache.flush",
                                        "thread.peak.reset"};
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
    static const char *const names[] = {"opt",
                                        "arenas",
                                        "arena.0",
                                        "stats.arenas",
                                        "no.such.name",
                                        "stats.arenas.0.bins.100000.curregs",
                                        "arenas.lextent.100000.size",
                                        "arena.99999.decay"};
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

static void errors(void) {
    lengths();
    read_only();
    neither();
    absent();
    wrong_values();
}

/* Names translated once, then used with other indices; names and numbers that are none. */
static void same_by_name_and_number(const char *name) {
    size_t mib[8], length = 8;
    CHECK(mallctlnametomib(name, mib, &length) == 0 && length <= 8);
    size_t depth = 1;
    for (const char *dot = name; (dot = strchr(dot, '.')) != NULL; dot++) depth++;
    CHECK(length == depth);
    unsigned char by_name[8] = {0}, by_number[8] = {0};
    size_t name_size = 8, number_size = 8;
    int name_error = mallctl(name, by_name, &name_size, NULL, 0);
    int number_error = mallctlbymib(mib, length, by_number, &number_size, NULL, 0);
    CHECK(name_error == number_error && name_size == number_size);
    CHECK(memcmp(by_name, by_number, 8) == 0);
}

static void mib(void) {
    static const char *const names[] = {"version",
                                        "epoch",
                                        "opt.narenas",
                                        "arenas.page",
                                        "arenas.bin.0.size",
                                        "arenas.lextent.2.size",
                                        "stats.allocated",
                                        "stats.arenas.0.pactive",
                                        "stats.arenas.0.bins.3.curregs",
                                        "thread.tcache.enabled",
                                        "arena.0.dirty_decay_ms",
                                        "background_thread"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) same_by_name_and_number(names[i]);

    /* One translation, all indices: what exporters and redis do. */
    size_t mib[8], length = 8;
    CHECK(mallctlnametomib("arenas.bin.0.size", mib, &length) == 0 && length == 4);
    unsigned bins = GET(unsigned, "arenas.nbins");
    size_t before = 0;
    for (unsigned i = 0; i < bins; i++) {
        size_t size, size_length = sizeof size;
        mib[2] = i;
        CHECK(mallctlbymib(mib, length, &size, &size_length, NULL, 0) == 0);
        CHECK(size > before && size == GET(size_t, named("arenas.bin.%u.size", i)));
        before = size;
    }
    size_t size, size_length = sizeof size;
    mib[2] = bins + 1;
    CHECK(mallctlbymib(mib, length, &size, &size_length, NULL, 0) == ENOENT);
    mib[2] = SIZE_MAX;
    CHECK(mallctlbymib(mib, length, &size, &size_length, NULL, 0) == ENOENT);

    /* The beginning of a name is translated, and can be completed by hand. */
    length = 3;
    CHECK(mallctlnametomib("stats.arenas.0", mib, &length) == 0 && length == 3);
    CHECK(mallctlbymib(mib, length, &size, &size_length, NULL, 0) == ENOENT);
    length = 1;
    CHECK(mallctlnametomib("stats", mib, &length) == 0 && length == 1);
    CHECK(mallctlbymib(mib, 1, &size, &size_length, NULL, 0) == ENOENT);
    mib[0] = 100000;
    CHECK(mallctlbymib(mib, 1, &size, &size_length, NULL, 0) == ENOENT);

    /* Too little room gives the numbers of the first elements. */
    size_t two[2] = {0, 0}, whole[4], count = 4;
    CHECK(mallctlnametomib("arenas.bin.0.size", whole, &count) == 0);
    length = 2;
    CHECK(mallctlnametomib("arenas.bin.0.size", two, &length) == 0);
    CHECK(length == 2 && two[0] == whole[0] && two[1] == whole[1]);

    static const char *const none[] = {
        "",       "nothing",           "stats.nothing",          "stats.allocated.more", "stats..allocated",
        ".stats", "arenas.bin.x.size", "arenas.bin.100000.size", "arena.100000.purge",   "epoc"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        length = 8;
        if (mallctlnametomib(none[i], mib, &length) != ENOENT) {
            say(none[i]);
            CHECK(!"a name that is none was translated");
        }
        CHECK(mallctl(none[i], NULL, NULL, NULL, 0) == ENOENT);
    }
}

/* Every option that programs and dashboards read, with its type; without settings. */
static void options(void) {
    static const char *const flags[] = {"opt.abort",
                                        "opt.abort_conf",
                                        "opt.confirm_conf",
                                        "opt.background_thread",
                                        "opt.tcache",
                                        "opt.retain",
                                        "opt.zero",
                                        "opt.prof",
                                        "opt.prof_active",
                                        "opt.prof_accum",
                                        "opt.prof_gdump",
                                        "opt.prof_final",
                                        "opt.prof_leak",
                                        "opt.stats_print",
                                        "opt.hpa",
                                        "opt.cache_oblivious",
                                        "opt.trust_madvise",
                                        "opt.prof_thread_active_init",
                                        "opt.prof_leak_error",
                                        "opt.experimental_infallible_new",
                                        "config.cache_oblivious",
                                        "config.debug",
                                        "config.fill",
                                        "config.lazy_lock",
                                        "config.opt_safety_checks",
                                        "config.prof",
                                        "config.prof_libgcc",
                                        "config.prof_libunwind",
                                        "config.stats",
                                        "config.utrace",
                                        "config.xmalloc"};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        unsigned char flag = 7;
        size_t length = sizeof flag;
        int error = mallctl(flags[i], &flag, &length, NULL, 0);
        if (error != 0 || length != 1 || flag > 1) node_failed(__FILE__, __LINE__, flags[i], error, length);
    }
    static const char *const texts[] = {"version",
                                        "opt.dss",
                                        "opt.percpu_arena",
                                        "opt.thp",
                                        "opt.junk",
                                        "opt.metadata_thp",
                                        "opt.prof_prefix",
                                        "opt.stats_print_opts",
                                        "opt.stats_interval_opts",
                                        "opt.zero_realloc",
                                        "config.malloc_conf"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const char *text = GET(const char *, texts[i]);
        CHECK(text != NULL && strlen(text) < 500);
    }
    static const char *const sizes[] = {"opt.oversize_threshold",
                                        "opt.lg_extent_max_active_fit",
                                        "opt.tcache_max",
                                        "opt.max_background_threads",
                                        "opt.lg_prof_sample",
                                        "opt.tcache_gc_incr_bytes",
                                        "opt.tcache_gc_delay_bytes",
                                        "arenas.quantum",
                                        "arenas.page",
                                        "arenas.tcache_max"};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) (void)GET(size_t, sizes[i]);
    static const char *const numbers[] = {"opt.narenas",
                                          "opt.tcache_nslots_small_min",
                                          "opt.tcache_nslots_small_max",
                                          "opt.tcache_nslots_large",
                                          "opt.lg_tcache_flush_small_div",
                                          "opt.lg_tcache_flush_large_div",
                                          "arenas.nbins",
                                          "arenas.nhbins",
                                          "arenas.narenas",
                                          "arenas.nlextents"};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) (void)GET(unsigned, numbers[i]);
    static const char *const signed_sizes[] = {"opt.dirty_decay_ms",       "opt.muzzy_decay_ms",
                                               "opt.lg_tcache_nslots_mul", "opt.lg_prof_interval",
                                               "arenas.dirty_decay_ms",    "arenas.muzzy_decay_ms"};
    for (size_t i = 0; i < sizeof signed_sizes / sizeof *signed_sizes; i++) CHECK(GET(ssize_t, signed_sizes[i]) >= -1);
    CHECK(GET(int64_t, "opt.stats_interval") == -1);
    CHECK(GET(int64_t, "opt.mutex_max_spin") >= 0);

    /* The defaults that programs rely on. */
    CHECK(!GET(bool, "opt.abort_conf") && !GET(bool, "opt.stats_print") && !GET(bool, "opt.zero"));
    CHECK(GET(bool, "opt.tcache") && !GET(bool, "opt.prof"));
    CHECK(strcmp(GET(const char *, "opt.junk"), "false") == 0);
    CHECK(strcmp(GET(const char *, "opt.zero_realloc"), "free") == 0);
    CHECK(strcmp(GET(const char *, "opt.prof_prefix"), "jeprof") == 0);
    CHECK(GET(bool, "config.stats") && GET(bool, "config.fill") && GET(bool, "config.prof"));
    CHECK(GET(size_t, "arenas.page") == (size_t)sysconf(_SC_PAGESIZE));
    CHECK(GET(size_t, "arenas.quantum") == 16);
    int major = 0;
    CHECK(sscanf(GET(const char *, "version"), "%d.", &major) == 1 && major == 5);
}

/* Moves only when it is written, whatever is written; statistics stand still in between. */
static void epoch(void) {
    uint64_t first = GET(uint64_t, "epoch");
    CHECK(first > 0 && GET(uint64_t, "epoch") == first);
    SET(uint64_t, "epoch", 12345);
    CHECK(GET(uint64_t, "epoch") == first + 1);
    /* Read and written at once, the new number comes back. */
    CHECK(SWAP(uint64_t, "epoch", 0) == first + 2);

    size_t allocated = GET(size_t, "stats.allocated");
    void *block = malloc(10 * MIB);
    CHECK(block != NULL && GET(size_t, "stats.allocated") == allocated);
    refresh();
    CHECK(GET(size_t, "stats.allocated") >= allocated + 10 * MIB);
    free(block);
    CHECK(GET(size_t, "stats.allocated") >= allocated + 10 * MIB);
    refresh();
    CHECK(GET(size_t, "stats.allocated") < allocated + MIB);

    uint32_t narrow = 1;
    CHECK(mallctl("epoch", NULL, NULL, &narrow, sizeof narrow) == EINVAL);
}

/* Settings compiled into the program: read before main, shown by opt.*, and in force. */
static void compiled_in(void) {
    CHECK(GET(unsigned, "opt.narenas") == 3);
    CHECK(GET(ssize_t, "opt.dirty_decay_ms") == 1234);
    CHECK(GET(ssize_t, "opt.muzzy_decay_ms") == -1);
    CHECK(!GET(bool, "opt.tcache"));
    CHECK(!GET(bool, "opt.background_thread"));
    CHECK(GET(size_t, "opt.lg_extent_max_active_fit") == 5);
    CHECK(GET(size_t, "opt.oversize_threshold") == 0);
    CHECK(GET(bool, "opt.retain"));
    CHECK(strcmp(GET(const char *, "opt.stats_print_opts"), "J") == 0);
    CHECK(strcmp(GET(const char *, "opt.dss"), "disabled") == 0);
    /* In force. */
    CHECK(GET(ssize_t, "arenas.dirty_decay_ms") == 1234);
    CHECK(GET(ssize_t, "arena.0.dirty_decay_ms") == 1234);
    CHECK(GET(ssize_t, "arenas.muzzy_decay_ms") == -1);
    CHECK(GET(unsigned, "arenas.narenas") == 3);
    CHECK(!GET(bool, "thread.tcache.enabled"));
    CHECK(!GET(bool, "background_thread"));
    unsigned made = GET(unsigned, "arenas.create");
    CHECK(made == 3 && GET(ssize_t, named("arena.%u.dirty_decay_ms", made)) == 1234);
}

/* Settings of the environment against those compiled in: what comes later wins, key by key. */
static void environment(void) {
    CHECK(GET(ssize_t, "opt.dirty_decay_ms") == 777);
    CHECK(GET(ssize_t, "opt.muzzy_decay_ms") == 55);
    CHECK(GET(unsigned, "opt.narenas") == 2);
    CHECK(GET(ssize_t, "arena.0.dirty_decay_ms") == 777);
}

/* With settings that are known from production: a burst of threads, then idle. */
#define THREADS 6

static void *worker(void *seed) {
    struct churn *set = malloc(sizeof *set);
    churn_start(set, (uint64_t)(uintptr_t)seed);
    for (int step = 0; step < 20000; step++) churn_step(set);
    churn_end(set);
    free(set);
    return NULL;
}

static void deployed(void) {
    run_threads(THREADS, worker);
    refresh();
    CHECK(GET(size_t, "stats.allocated") < 16 * MIB);
    CHECK(GET(size_t, "stats.resident") >= GET(size_t, "stats.active"));
    /* The settings arrived. */
    const char *settings = getenv("MALLOC_CONF");
    CHECK(settings != NULL);
    const char *decay = strstr(settings, "dirty_decay_ms:");
    CHECK(decay != NULL);
    CHECK(GET(ssize_t, "opt.dirty_decay_ms") == atol(decay + strlen("dirty_decay_ms:")));
    CHECK(GET(bool, "opt.background_thread") == (strstr(settings, "background_thread:true") != NULL));
    CHECK(GET(bool, "opt.tcache") == (strstr(settings, "tcache:false") == NULL));
    if (strstr(settings, "narenas:1") != NULL) CHECK(GET(unsigned, "opt.narenas") == 1);
    if (strstr(settings, "narenas:2") != NULL) CHECK(GET(unsigned, "opt.narenas") == 2);
    if (strstr(settings, "percpu_arena:percpu") != NULL)
        CHECK(strcmp(GET(const char *, "opt.percpu_arena"), "percpu") == 0);
    CHECK(GET(bool, "opt.prof") == (strstr(settings, "prof:true") != NULL));
}

CASES(CASE(errors), CASE(mib), CASE(options), CASE(epoch), CASE(compiled_in), CASE(environment), CASE(deployed))
