/* stats.*, and the texts of malloc_stats_print. */
#include "control.h"

#define BLOCKS 5000

static void ordered(void) {
    size_t allocated = GET(size_t, "stats.allocated"), active = GET(size_t, "stats.active");
    size_t resident = GET(size_t, "stats.resident"), mapped = GET(size_t, "stats.mapped");
    size_t page = GET(size_t, "arenas.page");
    CHECK(allocated > 0 && allocated <= active && active <= resident && resident <= mapped);
    CHECK(active % page == 0 && resident % page == 0 && mapped % page == 0);
    CHECK(GET(size_t, "stats.metadata") > 0);
    CHECK(GET(size_t, "stats.metadata") < resident);
    (void)GET(size_t, "stats.retained");
    (void)GET(size_t, "stats.metadata_thp");
    (void)GET(size_t, "stats.zero_reallocs");
}

static size_t of_all(const char *what) { return GET(size_t, named("stats.arenas.%u.%s", MALLCTL_ARENAS_ALL, what)); }

/* The totals are the arenas' sums, an arena's those of its bins and classes. */
static void sums(void) {
    size_t small = of_all("small.allocated"), large = of_all("large.allocated");
    CHECK(small + large == GET(size_t, "stats.allocated"));
    CHECK(of_all("pactive") * GET(size_t, "arenas.page") == GET(size_t, "stats.active"));
    size_t in_bins = 0, in_classes = 0;
    unsigned bins = GET(unsigned, "arenas.nbins"), classes = GET(unsigned, "arenas.nlextents");
    for (unsigned i = 0; i < bins; i++) {
        size_t size = GET(size_t, named("arenas.bin.%u.size", i));
        const char *bin = named("stats.arenas.%u.bins.%u", MALLCTL_ARENAS_ALL, i);
        size_t live = GET(size_t, named("%s.curregs", bin));
        size_t slabs = GET(size_t, named("%s.curslabs", bin));
        size_t nonfull = GET(size_t, named("%s.nonfull_slabs", bin));
        uint32_t regions = GET(uint32_t, named("arenas.bin.%u.nregs", i));
        uint64_t made = GET(uint64_t, named("%s.nmalloc", bin));
        uint64_t freed = GET(uint64_t, named("%s.ndalloc", bin));
        CHECK(made - freed == live && live <= slabs * regions && nonfull <= slabs);
        /* Blocks of caches are with the program as far as bins know. */
        CHECK(GET(uint64_t, named("%s.nslabs", bin)) >= slabs);
        (void)GET(uint64_t, named("%s.nrequests", bin));
        (void)GET(uint64_t, named("%s.nfills", bin));
        (void)GET(uint64_t, named("%s.nflushes", bin));
        (void)GET(uint64_t, named("%s.nreslabs", bin));
        in_bins += live * size;
    }
    CHECK(in_bins == small);
    for (unsigned i = 0; i < classes; i++) {
        size_t size = GET(size_t, named("arenas.lextent.%u.size", i));
        const char *of = named("stats.arenas.%u.lextents.%u", MALLCTL_ARENAS_ALL, i);
        size_t live = GET(size_t, named("%s.curlextents", of));
        CHECK(GET(uint64_t, named("%s.nmalloc", of)) - GET(uint64_t, named("%s.ndalloc", of)) == live);
        in_classes += live * size;
    }
    /* A large block may be smaller than its class. */
    CHECK(in_classes >= large && in_classes - large <= large / 4);
}

static void *idle_thread(void *gate) {
    free(malloc(10));
    pthread_barrier_wait(gate);
    pthread_barrier_wait(gate);
    return NULL;
}

static void figures(void) {
    void *kept = malloc(1); /* Or nothing would be allocated once all else is freed. */
    CHECK(kept != NULL);
    refresh();
    ordered();
    sums();
    size_t start = GET(size_t, "stats.allocated");

    static void *held[BLOCKS];
    size_t expected = 0;
    for (int i = 0; i < BLOCKS; i++) {
        held[i] = malloc(i % 10 == 0 ? 40 * KIB : 500);
        memset(held[i], 1, i % 10 == 0 ? 40 * KIB : 500);
        expected += malloc_usable_size(held[i]);
    }
    /* Old until the epoch moves. */
    CHECK(GET(size_t, "stats.allocated") == start);
    refresh();
    ordered();
    sums();
    size_t full = GET(size_t, "stats.allocated");
    /* What lay in the cache counted already. */
    CHECK(full + 256 * KIB >= start + expected && full < start + expected + expected / 10 + MIB);
    for (int i = 0; i < BLOCKS; i++) free(held[i]);
    CALL("thread.tcache.flush");
    refresh();
    ordered();
    sums();
    CHECK(GET(size_t, "stats.allocated") < start + 256 * KIB);

    /* An arena of one's own shows every block. */
    unsigned arena = GET(unsigned, "arenas.create");
    int flags = MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE;
    void *small[100], *large[10];
    size_t small_bytes = 0, large_bytes = 0;
    for (int i = 0; i < 100; i++) small_bytes += sallocx(small[i] = mallocx(100, flags), 0);
    for (int i = 0; i < 10; i++) large_bytes += sallocx(large[i] = mallocx(MIB, flags), 0);
    refresh();
    const char *of = named("stats.arenas.%u", arena);
    CHECK(GET(size_t, named("%s.small.allocated", of)) == small_bytes);
    CHECK(GET(size_t, named("%s.large.allocated", of)) == large_bytes);
    CHECK(GET(uint64_t, named("%s.small.nmalloc", of)) == 100);
    CHECK(GET(uint64_t, named("%s.large.nmalloc", of)) == 10);
    CHECK(GET(size_t, named("%s.pactive", of)) * GET(size_t, "arenas.page") >= small_bytes + large_bytes);
    CHECK(GET(size_t, named("%s.mapped", of)) >= small_bytes + large_bytes);
    CHECK(GET(size_t, named("%s.resident", of)) >= small_bytes);
    for (int i = 0; i < 100; i++) dallocx(small[i], MALLOCX_TCACHE_NONE);
    refresh();
    CHECK(GET(size_t, named("%s.small.allocated", of)) == 0);
    CHECK(GET(uint64_t, named("%s.small.ndalloc", of)) == 100);
    CHECK(GET(size_t, named("%s.large.allocated", of)) == large_bytes);
    (void)GET(ssize_t, named("%s.dirty_decay_ms", of));
    (void)GET(const char *, named("%s.dss", of));
    (void)GET(size_t, named("%s.tcache_bytes", of));
    (void)GET(size_t, named("%s.base", of));
    (void)GET(size_t, named("%s.internal", of));
    (void)GET(size_t, named("%s.retained", of));
    CHECK(GET(size_t, named("%s.pmuzzy", of)) * 4096 <= 64 * MIB);

    /* Time and threads. */
    CHECK(GET(uint64_t, named("%s.uptime", of)) < 600000000000u);
    unsigned nthreads = GET(unsigned, named("stats.arenas.%u.nthreads", MALLCTL_ARENAS_ALL));
    pthread_barrier_t gate;
    pthread_barrier_init(&gate, NULL, 4);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) threads[i] = started(idle_thread, &gate);
    pthread_barrier_wait(&gate);
    refresh();
    CHECK(GET(unsigned, named("stats.arenas.%u.nthreads", MALLCTL_ARENAS_ALL)) == nthreads + 3);
    pthread_barrier_wait(&gate);
    join_all(threads, 3);
    refresh();
    CHECK(GET(unsigned, named("stats.arenas.%u.nthreads", MALLCTL_ARENAS_ALL)) == nthreads);

    /* The old name of all. */
    CHECK(GET(size_t, named("stats.arenas.%u.pactive", GET(unsigned, "arenas.narenas"))) == of_all("pactive"));
    free(kept);
}

/* malloc_stats_print with "J": one JSON value in jemalloc's shape, well formed with any options. */
static char text[4 << 20];
static size_t used;
static void *const mark = text + 7;

static void into_text(void *opaque, const char *part) {
    CHECK(opaque == mark);
    size_t length = strlen(part);
    CHECK(used + length < sizeof text);
    memcpy(text + used, part, length + 1);
    used += length;
}

static const char *print(const char *options) {
    used = 0;
    text[0] = 0;
    malloc_stats_print(into_text, mark, options);
    return text;
}

/* With one arena there is nothing to merge. */
static void make_another_arena(void) {
    int flags = MALLOCX_ARENA(GET(unsigned, "arenas.create")) | MALLOCX_TCACHE_NONE;
    CHECK(mallocx(100, flags) != NULL);
}

static const char *at;

static void blanks(void) {
    while (*at == ' ' || *at == '\n' || *at == '\t' || *at == '\r') at++;
}

static void string(char *into, size_t room) {
    CHECK(*at == '"');
    at++;
    size_t length = 0;
    while (*at != '"') {
        CHECK((unsigned char)*at >= ' ');
        if (*at == '\\') at++;
        if (into != NULL) {
            CHECK(length + 1 < room);
            into[length++] = *at;
        }
        at++;
    }
    at++;
    if (into != NULL) into[length] = 0;
}

/* The path of the value that is looked for, and where it was found. */
static const char *wanted_path;
static const char *found;

static void value(const char *path) {
    blanks();
    if (strcmp(path, wanted_path) == 0) found = at;
    if (*at == '{' || *at == '[') {
        char open = *at, close = open == '{' ? '}' : ']';
        at++;
        blanks();
        unsigned index = 0;
        if (*at == close) {
            at++;
            return;
        }
        for (;;) {
            char name[128], below[512];
            blanks();
            if (open == '{') {
                string(name, sizeof name);
                blanks();
                CHECK(*at == ':');
                at++;
            } else {
                snprintf(name, sizeof name, "%u", index++);
            }
            CHECK((size_t)snprintf(below, sizeof below, "%s/%s", path, name) < sizeof below);
            value(below);
            blanks();
            if (*at == close) break;
            CHECK(*at == ',');
            at++;
        }
        at++;
    } else if (*at == '"') {
        string(NULL, 0);
    } else if (strncmp(at, "true", 4) == 0 || strncmp(at, "null", 4) == 0) {
        at += 4;
    } else if (strncmp(at, "false", 5) == 0) {
        at += 5;
    } else {
        char *end;
        strtod(at, &end);
        CHECK(end != at);
        at = end;
    }
}

static const char *look_up(const char *path) {
    wanted_path = path;
    found = NULL;
    at = text;
    value("");
    blanks();
    CHECK(*at == 0);
    return found;
}

static double number(const char *path) {
    const char *place = look_up(path);
    if (place == NULL) {
        say(path);
        say(" is not in the statistics\n");
        _exit(99);
    }
    char *end;
    double result = strtod(place, &end);
    CHECK(end != place);
    return result;
}

static void json(void) {
    void *small = malloc(100), *large = malloc(3 * MIB);
    make_another_arena();
    print("J");
    /* The figures are those of the tree. */
    CHECK(number("/jemalloc/stats/allocated") == (double)GET(size_t, "stats.allocated"));
    CHECK(number("/jemalloc/stats/resident") == (double)GET(size_t, "stats.resident"));
    CHECK(number("/jemalloc/stats/mapped") == (double)GET(size_t, "stats.mapped"));
    CHECK(number("/jemalloc/arenas/page") == (double)GET(size_t, "arenas.page"));
    CHECK(number("/jemalloc/arenas/nbins") == (double)GET(unsigned, "arenas.nbins"));
    CHECK(number("/jemalloc/arenas/bin/0/size") == (double)GET(size_t, "arenas.bin.0.size"));
    CHECK(number("/jemalloc/opt/narenas") == (double)GET(unsigned, "opt.narenas"));
    CHECK(number("/jemalloc/stats.arenas/merged/small/allocated") > 0);
    CHECK(number("/jemalloc/stats.arenas/merged/large/allocated") >= 3 * MIB);
    CHECK(number("/jemalloc/stats.arenas/merged/pactive") > 0);
    CHECK(number("/jemalloc/stats.arenas/merged/bins/3/nmalloc") >= 0);
    CHECK(number("/jemalloc/stats.arenas/merged/bins/3/curregs") >= 0);
    CHECK(number("/jemalloc/stats.arenas/merged/lextents/0/curlextents") >= 0);
    CHECK(number("/jemalloc/stats.arenas/0/uptime_ns") >= 0);
    CHECK(number("/jemalloc/stats/background_thread/num_threads") >= 0);
    CHECK(look_up("/jemalloc/version") != NULL && *found == '"');
    CHECK(look_up("/jemalloc/config/stats") != NULL && strncmp(found, "true", 4) == 0);
    CHECK(look_up("/jemalloc/prof/active") != NULL || !GET(bool, "config.prof"));
    /* Well formed with any part left out, in any order. */
    static const char *const options[] = {"Jg",    "Jm", "Jd",         "Ja",  "Jb", "Jl", "Jx",  "Jh",  "Je",
                                          "Jmdab", "gJ", "Jgmdablxhe", "Jbl", "J?", "JJ", "Jgx", "Jmda"};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        print(options[i]);
        CHECK(look_up("/jemalloc") != NULL && *found == '{');
    }
    print("Jg");
    CHECK(look_up("/jemalloc/config") == NULL);
    print("Jm");
    CHECK(look_up("/jemalloc/stats.arenas/merged") == NULL);
    print("Jb");
    CHECK(look_up("/jemalloc/stats.arenas/merged/bins") == NULL);
    CHECK(look_up("/jemalloc/stats.arenas/merged/lextents") != NULL);
    print("Jl");
    CHECK(look_up("/jemalloc/stats.arenas/merged/lextents") == NULL);
    free(small);
    free(large);
}

/* malloc_message takes what would go to stderr. malloc_stats_print writes through the function that it is given. */
static unsigned messages;

static void own_message(void *opaque, const char *part) {
    CHECK(opaque == NULL || opaque == mark);
    CHECK(strlen(part) > 0 || 1);
    messages++;
}

static void message(void) {
    void *blocks[100];
    for (int i = 0; i < 100; i++) blocks[i] = malloc((size_t)i * 200 + 1);
    make_another_arena();
    /* What its readers look for. */
    print(NULL);
    static const char *const wanted[] = {"___ Begin jemalloc statistics ___",
                                         "--- End jemalloc statistics ---",
                                         "Version: ",
                                         "opt.narenas: ",
                                         "opt.dirty_decay_ms: ",
                                         "Arenas: ",
                                         "Page size: ",
                                         "Allocated: ",
                                         "Merged arenas stats:",
                                         "arenas[0]:",
                                         "bins:",
                                         "large:",
                                         "dirty",
                                         "resident"};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (strstr(text, wanted[i]) == NULL) {
            say(wanted[i]);
            say(" is not in the statistics\n");
            _exit(99);
        }
    /* The line of totals can be read by a machine, and is ordered. */
    size_t allocated, active, metadata, resident, mapped, retained;
    const char *line = strstr(text, "Allocated: ");
    int fields = sscanf(
        line, "Allocated: %zu, active: %zu, metadata: %zu (n_thp %*u), resident: %zu, mapped: %zu, retained: %zu",
        &allocated, &active, &metadata, &resident, &mapped, &retained);
    if (fields != 6) /* Later versions tell more about the metadata. */
        fields = sscanf(line,
                        "Allocated: %zu, active: %zu, metadata: %zu (n_thp %*u, edata %*u, rtree %*u), resident: %zu, "
                        "mapped: %zu, retained: %zu",
                        &allocated, &active, &metadata, &resident, &mapped, &retained);
    CHECK(fields == 6);
    CHECK(allocated > 0 && allocated <= active && active <= resident && resident <= mapped);

    /* Options leave parts out. */
    size_t all = strlen(print(""));
    CHECK(strlen(print("g")) < all && strstr(text, "opt.narenas") == NULL);
    CHECK(strlen(print("b")) < all && strlen(print("l")) < all && strlen(print("a")) < all);
    print("m");
    CHECK(strstr(text, "Merged arenas stats:") == NULL);
    CHECK(strlen(print("gmdablxhe")) < all / 2);

    /* Without a function of the caller's, malloc_message has it. */
    malloc_message = own_message;
    malloc_stats_print(NULL, NULL, "gmdabl");
    CHECK(messages > 0);
    for (int i = 0; i < 100; i++) free(blocks[i]);
}

/* Ends with memory in use; statistics and leak reports by settings are the harness's to read. */
static void at_exit(void) {
    void *volatile kept = MUST(malloc(123456));
    memset(kept, 1, 123456);
    kept = NULL;
}

CASES(CASE(figures), CASE(json), CASE(message), CASE(at_exit))
