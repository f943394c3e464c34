/* thread.allocated and its kin: counters of one thread, live behind the pointers. */
#include "control.h"

static void *elsewhere(void *nothing) {
    uint64_t allocated = GET(uint64_t, "thread.allocated");
    uint64_t *live = GET(uint64_t *, "thread.allocatedp");
    void *block = malloc(100 * KIB);
    CHECK(*live >= allocated + 100 * KIB);
    free(block);
    return nothing;
}

int main(void) {
    require_preload();
    uint64_t *allocated = GET(uint64_t *, "thread.allocatedp");
    uint64_t *deallocated = GET(uint64_t *, "thread.deallocatedp");
    CHECK(GET(uint64_t, "thread.allocated") == *allocated);
    CHECK(GET(uint64_t, "thread.deallocated") == *deallocated);
    CHECK(GET(uint64_t *, "thread.allocatedp") == allocated);

    for (size_t size = 1; size <= 4 * MIB; size = size * 3 + 1) {
        uint64_t from = *allocated, freed = *deallocated;
        void *block = malloc(size);
        CHECK(*allocated == from + malloc_usable_size(block) && *deallocated == freed);
        CHECK(GET(uint64_t, "thread.allocated") == *allocated);
        size_t usable = malloc_usable_size(block);
        free(block);
        CHECK(*deallocated == freed + usable && *allocated == from + usable);
        CHECK(GET(uint64_t, "thread.deallocated") == *deallocated);
    }
    /* Every way to allocate and to free counts. */
    uint64_t from = *allocated, freed = *deallocated, expected = 0;
    void *held[8];
    held[0] = calloc(10, 30);
    held[1] = mallocx(700, MALLOCX_ZERO);
    held[2] = aligned_alloc(256, 1000);
    CHECK(posix_memalign(&held[3], 4096, 5000) == 0);
    held[4] = mallocx(9000, MALLOCX_TCACHE_NONE);
    held[5] = mallocx(100, MALLOCX_ALIGN(64));
    for (int i = 0; i < 6; i++) expected += sallocx(held[i], 0);
    CHECK(*allocated == from + expected);
    free(held[0]);
    dallocx(held[1], 0);
    sdallocx(held[2], 1000, MALLOCX_ALIGN(256));
    free(held[3]);
    dallocx(held[4], MALLOCX_TCACHE_NONE);
    free(held[5]);
    CHECK(*deallocated == freed + expected);
    /* What a realloc moves counts on both sides. */
    void *block = malloc(64);
    from = *allocated, freed = *deallocated;
    size_t small = sallocx(block, 0);
    block = realloc(block, 64 * KIB);
    CHECK(*allocated == from + sallocx(block, 0) && *deallocated == freed + small);
    free(block);

    /* Another thread's work is its own. */
    from = *allocated;
    pthread_t thread;
    uint64_t before_thread;
    CHECK(pthread_create(&thread, NULL, elsewhere, NULL) == 0);
    before_thread = *allocated;
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(*allocated - before_thread < 64 * KIB && before_thread - from < 64 * KIB);

    /* The peak of what was not freed yet, from a reset on. */
    CALL("thread.peak.reset");
    block = malloc(3 * MIB);
    free(block);
    uint64_t peak = GET(uint64_t, "thread.peak.read");
    CHECK(peak >= 3 * MIB && peak < 5 * MIB);
    CALL("thread.peak.reset");
    CHECK(GET(uint64_t, "thread.peak.read") < MIB);
    CALL("thread.idle");
    return passed();
}
