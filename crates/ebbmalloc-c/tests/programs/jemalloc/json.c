/* malloc_stats_print with "J": one JSON value in jemalloc's shape, well formed with any options. */
#include "control.h"

static char text[4 << 20];
static size_t used;

static void into_text(void *opaque, const char *part) {
    (void)opaque;
    size_t length = strlen(part);
    CHECK(used + length < sizeof text);
    memcpy(text + used, part, length + 1);
    used += length;
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

static void print(const char *options) {
    used = 0;
    malloc_stats_print(into_text, NULL, options);
}

int main(void) {
    require_preload();
    void *small = malloc(100), *large = malloc(3 * MIB);
    /* With one arena there is nothing to merge. */
    void *apart = mallocx(100, MALLOCX_ARENA(GET(unsigned, "arenas.create")) | MALLOCX_TCACHE_NONE);
    CHECK(apart != NULL);
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
    static const char *const options[] = {"Jg",  "Jm", "Jd",  "Ja",    "Jb",        "Jl",
                                          "Jx",  "Jh", "Je",  "Jmdab", "gJ",        "Jgmdablxhe",
                                          "Jbl", "J?", "JJ",  "Jgx",   "Jmda"};
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
    return passed();
}
