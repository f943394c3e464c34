/* Hooks that count and then call the default ones: the way in which most programs use them. */
#include "control.h"

static extent_hooks_t *defaults;
static size_t mapped;
static unsigned allocs;

static void *counting_alloc(extent_hooks_t *hooks, void *address, size_t size, size_t alignment,
                            bool *zero, bool *commit, unsigned arena) {
    (void)hooks;
    void *got = defaults->alloc(defaults, address, size, alignment, zero, commit, arena);
    if (got != NULL) {
        mapped += size;
        allocs++;
        CHECK(is_aligned(got, alignment));
        if (*zero) CHECK(reads_zero(got, 0, *commit ? 4096 : 0));
    }
    return got;
}

int main(void) {
    require_preload();
    unsigned arena = GET(unsigned, "arenas.create");
    defaults = GET(extent_hooks_t *, named("arena.%u.extent_hooks", arena));
    CHECK(defaults != NULL && defaults->alloc != NULL);
    static extent_hooks_t hooks;
    hooks = *defaults;
    hooks.alloc = counting_alloc;
    CHECK(SWAP(extent_hooks_t *, named("arena.%u.extent_hooks", arena), &hooks) == defaults);
    int flags = MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE;
    uint64_t random = 5;
    for (int round = 0; round < 3; round++) {
        void *held[200];
        size_t sizes[200], sum = 0;
        for (int i = 0; i < 200; i++) {
            sizes[i] = mixed_size(&random) + (i == 0 ? 24 * MIB : 0);
            sum += sizes[i];
            held[i] = mallocx(sizes[i], flags);
            CHECK(held[i] != NULL);
            fill(held[i], sizes[i]);
        }
        CHECK(allocs > 0 && mapped >= sum);
        for (int i = 0; i < 200; i++) {
            CHECK(holds(held[i], sizes[i]));
            dallocx(held[i], MALLOCX_TCACHE_NONE);
        }
        CALL(named("arena.%u.purge", arena));
    }
    CALL(named("arena.%u.destroy", arena));
    return passed();
}
