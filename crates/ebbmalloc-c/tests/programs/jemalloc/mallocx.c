/* mallocx: sizes, alignments, zeros, and its promise by nallocx. */
#include "control.h"

int main(void) {
    require_preload();
    soil();
    for (int lg = 0; lg <= 22; lg++)
        for (size_t size = 1; size <= 2 * MIB; size += 1 + size / 2)
            for (int zero = 0; zero <= MALLOCX_ZERO; zero += MALLOCX_ZERO) {
                int flags = MALLOCX_LG_ALIGN(lg) | zero;
                CHECK((MALLOCX_ALIGN((size_t)1 << lg) | zero) == flags);
                unsigned char *block = mallocx(size, flags);
                CHECK(block != NULL && is_aligned(block, (size_t)1 << lg));
                CHECK(sallocx(block, flags) == nallocx(size, flags));
                CHECK(sallocx(block, flags) == malloc_usable_size(block));
                if (zero) CHECK(reads_zero(block, 0, size));
                memset(block, 0x5a, sallocx(block, flags));
                dallocx(block, 0);
            }
    /* Without a cache: straight from the arena, the same block otherwise. */
    for (size_t size = 1; size <= MIB; size = size * 3 + 1) {
        unsigned char *block = mallocx(size, MALLOCX_TCACHE_NONE | MALLOCX_ZERO);
        CHECK(block != NULL && reads_zero(block, 0, size));
        memset(block, 0x33, size);
        dallocx(block, MALLOCX_TCACHE_NONE);
    }
    /* From an arena of the automatic ones. */
    unsigned arena = GET(unsigned, "thread.arena");
    unsigned char *block = mallocx(1000, MALLOCX_ARENA(arena) | MALLOCX_ZERO);
    CHECK(block != NULL && reads_zero(block, 0, 1000));
    dallocx(block, 0);
    return passed();
}
