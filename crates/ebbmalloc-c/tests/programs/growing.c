/* A program that only grows: what it has published in its stats_file, whose path is the argument, is
 * never more than a step of growth behind. */
#include "check.h"

/* crates/ebb-stats: magic, version, number of counters, then the counters; live_bytes is the first. */
static size_t published_live(const char *path) {
    unsigned char page[24];
    int file = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0);
    CHECK(read(file, page, sizeof page) == (ssize_t)sizeof page);
    close(file);
    CHECK(memcmp(page, "ebbstat", 8) == 0);
    uint64_t live;
    memcpy(&live, page + 16, sizeof live);
    return live;
}

int main(int count, char **arguments) {
    require_preload();
    CHECK(count == 2);
    char path[512];
    snprintf(path, sizeof path, "%s/%d", arguments[1], (int)getpid());
    size_t live = 0;
    for (int turn = 0; turn < 100; turn++) {
        for (int i = 0; i < 1024; i++, live += 1024) {
            char *block = malloc(1024);
            CHECK(block != NULL);
            block[0] = 1;
        }
        /* A step is of fresh pages: slabs of this size hold no more than their slots. */
        CHECK(published_live(path) + 5 * MIB > live);
    }
    char *large = malloc(32 * MIB);
    CHECK(large != NULL);
    CHECK(published_live(path) + 5 * MIB > live + 32 * MIB);
    return passed();
}
