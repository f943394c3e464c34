/* Explicit arenas: made, allocated from, looked up, named by thread.arena; the automatic ones. */
#include "control.h"

static void *asks_for_its_arena(void *wanted) {
    unsigned arena = *(unsigned *)wanted;
    SET(unsigned, "thread.arena", arena);
    CHECK(GET(unsigned, "thread.arena") == arena);
    /* What the thread allocates from now on comes from there. */
    void *small = malloc(100), *large = malloc(MIB);
    unsigned found;
    size_t length = sizeof found;
    CHECK(mallctl("arenas.lookup", &found, &length, &small, sizeof small) == 0 && found == arena);
    CHECK(mallctl("arenas.lookup", &found, &length, &large, sizeof large) == 0 && found == arena);
    free(small);
    free(large);
    return NULL;
}

static unsigned arena_of(void *block) {
    unsigned arena;
    size_t length = sizeof arena;
    CHECK(mallctl("arenas.lookup", &arena, &length, &block, sizeof block) == 0);
    CHECK(length == sizeof arena);
    return arena;
}

int main(void) {
    require_preload();
    unsigned automatic = GET(unsigned, "opt.narenas");
    unsigned before = GET(unsigned, "arenas.narenas");
    CHECK(automatic >= 1 && before >= automatic);

    unsigned first = GET(unsigned, "arenas.create");
    unsigned second = GET(unsigned, "arenas.create");
    CHECK(first == before && second == before + 1);
    CHECK(GET(unsigned, "arenas.narenas") == before + 2);
    refresh();
    CHECK(GET(bool, named("arena.%u.initialized", first)));

    unsigned char *held[2][60];
    size_t sizes[60];
    for (int i = 0; i < 60; i++) {
        sizes[i] = 1 + (size_t)i * i * i * 7;
        for (int which = 0; which < 2; which++) {
            unsigned arena = which == 0 ? first : second;
            int flags = MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE;
            held[which][i] = mallocx(sizes[i], flags);
            CHECK(held[which][i] != NULL && arena_of(held[which][i]) == arena);
            CHECK(sallocx(held[which][i], 0) == nallocx(sizes[i], 0));
            fill(held[which][i], sizes[i]);
        }
    }
    /* With zeros, with an alignment. */
    unsigned char *zeros = mallocx(3000, MALLOCX_ARENA(first) | MALLOCX_TCACHE_NONE | MALLOCX_ZERO);
    CHECK(reads_zero(zeros, 0, 3000) && arena_of(zeros) == first);
    free(zeros);
    unsigned char *aligned =
        mallocx(3000, MALLOCX_ARENA(first) | MALLOCX_TCACHE_NONE | MALLOCX_ALIGN(65536));
    CHECK(is_aligned(aligned, 65536) && arena_of(aligned) == first);
    free(aligned);
    /* realloc within an arena, and into another one. */
    unsigned char *moved = mallocx(500, MALLOCX_ARENA(first) | MALLOCX_TCACHE_NONE);
    memset(moved, 0x29, 500);
    moved = rallocx(moved, 200 * KIB, MALLOCX_ARENA(second) | MALLOCX_TCACHE_NONE);
    CHECK(moved != NULL && arena_of(moved) == second);
    for (int i = 0; i < 500; i++) CHECK(moved[i] == 0x29);
    dallocx(moved, MALLOCX_TCACHE_NONE);
    /* Any way to free does for any block. */
    for (int i = 0; i < 60; i++)
        for (int which = 0; which < 2; which++) {
            CHECK(holds(held[which][i], sizes[i]));
            if (i % 3 == 0) free(held[which][i]);
            else if (i % 3 == 1) dallocx(held[which][i], MALLOCX_TCACHE_NONE);
            else sdallocx(held[which][i], sizes[i], 0);
        }

    /* A thread's arena can be set, and read back; the old one comes with it. */
    unsigned home = GET(unsigned, "thread.arena");
    CHECK(home < before);
    CHECK(SWAP(unsigned, "thread.arena", first) == home);
    CHECK(GET(unsigned, "thread.arena") == first);
    CHECK(SWAP(unsigned, "thread.arena", home) == first);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, asks_for_its_arena, i % 2 ? &first : &second) == 0);
    for (int i = 0; i < 3; i++) CHECK(pthread_join(threads[i], NULL) == 0);

    /* An arena that is not there. */
    unsigned beyond = before + 2;
    unsigned none = 1000000;
    CHECK(mallctl("thread.arena", NULL, NULL, &none, sizeof none) == EFAULT);
    CHECK(mallctl("thread.arena", NULL, NULL, &beyond, sizeof beyond) == EFAULT);
    return passed();
}
