/* Names translated once, then used with other indices; names and numbers that are none. */
#include "control.h"

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

int main(void) {
    require_preload();
    static const char *const names[] = {"version", "epoch", "opt.narenas", "arenas.page",
                                        "arenas.bin.0.size", "arenas.lextent.2.size",
                                        "stats.allocated", "stats.arenas.0.pactive",
                                        "stats.arenas.0.bins.3.curregs", "thread.tcache.enabled",
                                        "arena.0.dirty_decay_ms", "background_thread"};
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

    static const char *const none[] = {"", "nothing", "stats.nothing", "stats.allocated.more",
                                       "stats..allocated", ".stats", "arenas.bin.x.size",
                                       "arenas.bin.100000.size", "arena.100000.purge", "epoc"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        length = 8;
        if (mallctlnametomib(none[i], mib, &length) != ENOENT) {
            say(none[i]);
            CHECK(!"a name that is none was translated");
        }
        CHECK(mallctl(none[i], NULL, NULL, NULL, 0) == ENOENT);
    }
    return passed();
}
