/* malloc_message takes what would go to stderr; malloc_stats_print writes where it is told. */
#include "control.h"

static char text[1 << 20];
static size_t used;
static void *const mark = text + 7;

static void into_text(void *opaque, const char *part) {
    CHECK(opaque == mark);
    size_t length = strlen(part);
    CHECK(used + length < sizeof text);
    memcpy(text + used, part, length + 1);
    used += length;
}

static unsigned messages;

static void own_message(void *opaque, const char *part) {
    CHECK(opaque == NULL || opaque == mark);
    CHECK(strlen(part) > 0 || 1);
    messages++;
}

static const char *print(const char *options) {
    used = 0;
    text[0] = 0;
    malloc_stats_print(into_text, mark, options);
    return text;
}

int main(void) {
    require_preload();
    void *blocks[100];
    for (int i = 0; i < 100; i++) blocks[i] = malloc((size_t)i * 200 + 1);
    /* With one arena there is nothing to merge. */
    void *apart = mallocx(100, MALLOCX_ARENA(GET(unsigned, "arenas.create")) | MALLOCX_TCACHE_NONE);
    CHECK(apart != NULL);
    /* What its readers look for. */
    print(NULL);
    static const char *const wanted[] = {"___ Begin jemalloc statistics ___",
                                         "--- End jemalloc statistics ---", "Version: ",
                                         "opt.narenas: ", "opt.dirty_decay_ms: ", "Arenas: ",
                                         "Page size: ", "Allocated: ", "Merged arenas stats:",
                                         "arenas[0]:", "bins:", "large:", "dirty", "resident"};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (strstr(text, wanted[i]) == NULL) {
            say(wanted[i]);
            say(" is not in the statistics\n");
            _exit(99);
        }
    /* The line of totals can be read by a machine, and is ordered. */
    size_t allocated, active, metadata, resident, mapped, retained;
    const char *line = strstr(text, "Allocated: ");
    int fields = sscanf(line, "Allocated: %zu, active: %zu, metadata: %zu (n_thp %*u), resident: %zu, mapped: %zu, retained: %zu",
                        &allocated, &active, &metadata, &resident, &mapped, &retained);
    if (fields != 6) /* Later versions tell more about the metadata. */
        fields = sscanf(line, "Allocated: %zu, active: %zu, metadata: %zu (n_thp %*u, edata %*u, rtree %*u), resident: %zu, mapped: %zu, retained: %zu",
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
    return passed();
}
