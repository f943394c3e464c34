/* sallocx, nallocx, sdallocx: what is promised, what comes, and frees that name the size. */
#include "control.h"

int main(void) {
    require_preload();
    soil();
    size_t before = 0;
    for (size_t size = 1; size <= 4 * MIB; size += 1 + size / 64) {
        size_t promised = nallocx(size, 0);
        /* Size classes: never less than asked for, monotonic, fixed points of themselves. */
        CHECK(promised >= size && promised >= before && nallocx(promised, 0) == promised);
        /* At most a quarter is lost above the smallest classes. */
        if (size >= 128) CHECK(promised - size <= size / 4);
        before = promised;
        void *block = malloc(size);
        CHECK(sallocx(block, 0) == promised && malloc_usable_size(block) == promised);
        sdallocx(block, size, 0);
        block = malloc(size);
        sdallocx(block, promised, 0);
        block = mallocx(size, MALLOCX_ALIGN(512));
        CHECK(sallocx(block, MALLOCX_ALIGN(512)) == nallocx(size, MALLOCX_ALIGN(512)));
        sdallocx(block, size, MALLOCX_ALIGN(512));
        block = mallocx(size, MALLOCX_TCACHE_NONE);
        sdallocx(block, size, MALLOCX_TCACHE_NONE);
    }
    /* What cannot be is promised as 0. */
    CHECK(nallocx(SIZE_MAX, 0) == 0);
    CHECK(nallocx((size_t)1 << 63, 0) == 0);
    CHECK(nallocx((size_t)1 << 63, MALLOCX_ALIGN(4096)) == 0);
    CHECK(nallocx(1, MALLOCX_LG_ALIGN(63)) == 0);
    CHECK(nallocx(SIZE_MAX - 10, MALLOCX_LG_ALIGN(20)) == 0);
    return passed();
}
