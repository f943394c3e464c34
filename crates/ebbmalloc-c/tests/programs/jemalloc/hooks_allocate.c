/* Hooks that allocate and free themselves, in every hook, while other threads use the arena and the
 * rest of the heap: nothing waits for itself. */
#include "control.h"

#define THREADS 4

static extent_hooks_t *defaults;
static unsigned entered;

static void use_heap(void) {
    __atomic_fetch_add(&entered, 1, __ATOMIC_RELAXED);
    void *held[20];
    for (int i = 0; i < 20; i++) {
        size_t size = 1 + (size_t)i * i * 300;
        held[i] = malloc(size);
        CHECK(held[i] != NULL);
        fill(held[i], size);
    }
    for (int i = 0; i < 20; i++) {
        CHECK(holds(held[i], 1 + (size_t)i * i * 300));
        free(held[i]);
    }
}

static void *hook_alloc(extent_hooks_t *hooks, void *address, size_t size, size_t alignment,
                        bool *zero, bool *commit, unsigned arena) {
    (void)hooks;
    use_heap();
    return defaults->alloc(defaults, address, size, alignment, zero, commit, arena);
}

static bool hook_dalloc(extent_hooks_t *hooks, void *address, size_t size, bool committed,
                        unsigned arena) {
    (void)hooks;
    use_heap();
    return defaults->dalloc(defaults, address, size, committed, arena);
}

static bool hook_purge_forced(extent_hooks_t *hooks, void *address, size_t size, size_t offset,
                              size_t length, unsigned arena) {
    (void)hooks;
    use_heap();
    return defaults->purge_forced(defaults, address, size, offset, length, arena);
}

static unsigned arena;

static void *worker(void *seed) {
    uint64_t random = (uint64_t)(uintptr_t)seed * 31 + 7;
    int flags = MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE;
    void *held[100] = {0};
    size_t sizes[100];
    for (int step = 0; step < 6000; step++) {
        unsigned slot = next_random(&random) % 100;
        if (held[slot] != NULL) {
            CHECK(holds(held[slot], sizes[slot]));
            dallocx(held[slot], MALLOCX_TCACHE_NONE);
            held[slot] = NULL;
        } else {
            sizes[slot] = mixed_size(&random);
            held[slot] = mallocx(sizes[slot], step % 2 ? flags : 0);
            CHECK(held[slot] != NULL);
            fill(held[slot], sizes[slot]);
        }
        if (step % 1000 == 999) CALL(named("arena.%u.purge", arena));
    }
    for (int i = 0; i < 100; i++) free(held[i]);
    CALL("thread.tcache.flush");
    return NULL;
}

int main(void) {
    require_preload();
    arena = GET(unsigned, "arenas.create");
    defaults = GET(extent_hooks_t *, named("arena.%u.extent_hooks", arena));
    static extent_hooks_t hooks;
    hooks = *defaults;
    hooks.alloc = hook_alloc;
    hooks.dalloc = hook_dalloc;
    hooks.purge_forced = hook_purge_forced;
    extent_hooks_t *ours = &hooks;
    CHECK(mallctl(named("arena.%u.extent_hooks", arena), NULL, NULL, &ours, sizeof ours) == 0);
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, worker, (void *)(i + 1)) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(entered > 0);
    CALL("thread.tcache.flush");
    CALL(named("arena.%u.destroy", arena));
    return passed();
}
