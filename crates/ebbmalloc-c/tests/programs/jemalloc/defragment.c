/* What a database does that defragments itself: it asks how full the slab of each value is, moves the
 * values of sparse slabs by new blocks, which come from fuller ones, and its memory shrinks. */
#include "control.h"

const char *malloc_conf = "dirty_decay_ms:0,muzzy_decay_ms:0,narenas:1";

#define VALUES 150000
#define BYTES 240

struct utilization {
    void *current;
    size_t nfree, nregs, size, bin_nfree, bin_nregs;
};

static unsigned char *value[VALUES];
static size_t query[8], query_length = 8;

/* Whether this value lies in a slab that is emptier than the bin's mean. */
static bool is_sparse(void *block) {
    struct utilization found;
    size_t length = sizeof found;
    CHECK(mallctlbymib(query, query_length, &found, &length, &block, sizeof block) == 0);
    char *current = found.current;
    if ((char *)block >= current && (char *)block < current + found.size) return false;
    double here = 1 - (double)found.nfree / (double)found.nregs;
    double mean = 1 - (double)found.bin_nfree / (double)found.bin_nregs;
    return found.nfree > 0 && here <= mean * 1.125;
}

int main(void) {
    require_preload();
    CHECK(mallctlnametomib("experimental.utilization.query", query, &query_length) == 0);
    size_t empty = resident_bytes();
    for (int i = 0; i < VALUES; i++) {
        value[i] = malloc(BYTES);
        CHECK(value[i] != NULL);
        fill(value[i], BYTES);
    }
    size_t full = resident_bytes() - empty;
    CHECK(full >= VALUES * (size_t)BYTES);
    /* One in twelve stays, so that there is something on nearly every page. */
    uint64_t random = 7;
    size_t left = 0;
    for (int i = 0; i < VALUES; i++) {
        if (next_random(&random) % 12 == 0) {
            left++;
            continue;
        }
        free(value[i]);
        value[i] = NULL;
    }
    CALL("thread.tcache.flush");
    CALL(named("arena.%u.purge", MALLCTL_ARENAS_ALL));
    size_t sparse = resident_bytes() - empty;
    unsigned moved = 1, passes = 0;
    for (; moved > 0 && passes < 30; passes++) {
        moved = 0;
        for (int i = 0; i < VALUES; i++) {
            if (value[i] == NULL || !is_sparse(value[i])) continue;
            CHECK(holds(value[i], BYTES));
            unsigned char *to = mallocx(BYTES, MALLOCX_TCACHE_NONE);
            CHECK(to != NULL);
            fill(to, BYTES);
            dallocx(value[i], MALLOCX_TCACHE_NONE);
            value[i] = to;
            moved++;
        }
        CALL(named("arena.%u.purge", MALLCTL_ARENAS_ALL));
    }
    size_t dense = resident_bytes() - empty;
    dprintf(2, "KiB resident: full %zu, a twelfth %zu, defragmented in %u passes %zu, live %zu\n",
            full / KIB, sparse / KIB, passes, dense / KIB, left * BYTES / KIB);
    CHECK(dense < sparse / 2 && dense < full / 5);
    for (int i = 0; i < VALUES; i++) {
        if (value[i] == NULL) continue;
        CHECK(holds(value[i], BYTES));
        free(value[i]);
    }
    return passed();
}
