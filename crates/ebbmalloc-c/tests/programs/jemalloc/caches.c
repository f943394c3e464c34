/* Explicit caches, and the thread's own: switched off and on, flushed. */
#include "control.h"

#define CACHES 20

static void explicit_caches(void) {
    unsigned caches[CACHES];
    for (int i = 0; i < CACHES; i++) {
        caches[i] = GET(unsigned, "tcache.create");
        for (int j = 0; j < i; j++) CHECK(caches[i] != caches[j]);
    }
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < CACHES; i++) {
            void *held[50];
            for (int j = 0; j < 50; j++) {
                held[j] = mallocx(1 + (size_t)j * 90, MALLOCX_TCACHE(caches[i]));
                CHECK(held[j] != NULL);
                fill(held[j], 1 + (size_t)j * 90);
            }
            /* One cache may free what came of another. */
            unsigned other = caches[(i + round) % CACHES];
            for (int j = 0; j < 50; j++) {
                CHECK(holds(held[j], 1 + (size_t)j * 90));
                if (j % 2) dallocx(held[j], MALLOCX_TCACHE(other));
                else sdallocx(held[j], 1 + (size_t)j * 90, MALLOCX_TCACHE(other));
            }
        }
    /* A cache hands its newest block out first. */
    void *block = mallocx(160, MALLOCX_TCACHE(caches[0]));
    dallocx(block, MALLOCX_TCACHE(caches[0]));
    CHECK(mallocx(160, MALLOCX_TCACHE(caches[0])) == block);
    /* rallocx through a cache. */
    block = rallocx(block, 1000, MALLOCX_TCACHE(caches[1]));
    CHECK(block != NULL);
    dallocx(block, MALLOCX_TCACHE(caches[1]));
    for (int i = 0; i < CACHES; i++) SET(unsigned, "tcache.flush", caches[i]);
    /* A flushed cache goes on. */
    block = mallocx(64, MALLOCX_TCACHE(caches[2]));
    CHECK(block != NULL);
    dallocx(block, MALLOCX_TCACHE(caches[2]));
    for (int i = 0; i < CACHES; i++) SET(unsigned, "tcache.destroy", caches[i]);
    /* Its number is free again. */
    unsigned again = GET(unsigned, "tcache.create");
    bool known = false;
    for (int i = 0; i < CACHES; i++) known |= caches[i] == again;
    CHECK(known);
    SET(unsigned, "tcache.destroy", again);
}

/* What was freed into a cache is allocated to the statistics until the cache is flushed: the
 * explicit arena's counts show when it went back. */
static void a_flush_gives_back(void) {
    unsigned arena = GET(unsigned, "arenas.create"), cache = GET(unsigned, "tcache.create");
    int flags = MALLOCX_ARENA(arena) | MALLOCX_TCACHE(cache);
    void *held[8];
    for (int i = 0; i < 8; i++) CHECK((held[i] = mallocx(320, flags)) != NULL);
    for (int i = 0; i < 8; i++) dallocx(held[i], flags);
    SET(unsigned, "tcache.flush", cache);
    refresh();
    CHECK(GET(size_t, named("stats.arenas.%u.small.allocated", arena)) == 0);
    SET(unsigned, "tcache.destroy", cache);
}

static void *own_cache(void *nothing) {
    CHECK(GET(bool, "thread.tcache.enabled"));
    void *block = malloc(100);
    free(block);
    CALL("thread.tcache.flush");
    CHECK(SWAP(bool, "thread.tcache.enabled", false) == true);
    CHECK(!GET(bool, "thread.tcache.enabled"));
    for (size_t size = 1; size < 100 * KIB; size *= 3) {
        block = malloc(size);
        CHECK(block != NULL);
        fill(block, size);
        block = realloc(block, 2 * size);
        CHECK(block != NULL);
        free(block);
    }
    /* There is nothing to flush. */
    CHECK(mallctl("thread.tcache.flush", NULL, NULL, NULL, 0) == EFAULT);
    CHECK(SWAP(bool, "thread.tcache.enabled", true) == false);
    CHECK(GET(bool, "thread.tcache.enabled"));
    block = malloc(100);
    free(block);
    CALL("thread.tcache.flush");
    return nothing;
}

static void misuse(void) {
    unsigned cache = 0;
    size_t length = sizeof cache;
    CHECK(mallctl("tcache.create", &cache, &length, &cache, sizeof cache) == EPERM);
    CHECK(mallctl("tcache.flush", &cache, &length, NULL, 0) == EPERM);
    CHECK(mallctl("tcache.destroy", NULL, NULL, &cache, sizeof cache - 1) == EINVAL);
    CHECK(mallctl("thread.tcache.flush", &cache, &length, NULL, 0) == EPERM);
}

int main(void) {
    require_preload();
    explicit_caches();
    a_flush_gives_back();
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, own_cache, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    own_cache(NULL);
    misuse();
    /* The greatest size that caches take. */
    size_t greatest = GET(size_t, "arenas.tcache_max");
    CHECK(greatest >= 4096 && nallocx(greatest, 0) == greatest);
    return passed();
}
