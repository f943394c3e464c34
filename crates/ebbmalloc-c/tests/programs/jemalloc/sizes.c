/* The size classes as the control tree shows them are those that allocations have. */
#include "control.h"

int main(void) {
    require_preload();
    unsigned bins = GET(unsigned, "arenas.nbins"), classes = GET(unsigned, "arenas.nlextents");
    size_t page = GET(size_t, "arenas.page"), before = 0;
    CHECK(bins > 10 && classes > 10);
    for (unsigned i = 0; i < bins; i++) {
        size_t size = GET(size_t, named("arenas.bin.%u.size", i));
        size_t slab = GET(size_t, named("arenas.bin.%u.slab_size", i));
        uint32_t regions = GET(uint32_t, named("arenas.bin.%u.nregs", i));
        CHECK(size > before && slab % page == 0 && regions >= 1 && regions * size <= slab);
        CHECK(GET(uint32_t, named("arenas.bin.%u.nshards", i)) >= 1);
        /* Everything between two classes has the upper one. */
        CHECK(nallocx(size, 0) == size && nallocx(before + 1, 0) == size);
        void *block = malloc(size);
        CHECK(malloc_usable_size(block) == size);
        free(block);
        before = size;
    }
    for (unsigned i = 0; i < classes; i++) {
        size_t size = GET(size_t, named("arenas.lextent.%u.size", i));
        CHECK(size > before && size % page == 0);
        if (size < 64 * MIB) CHECK(nallocx(size, 0) == size);
        before = size;
    }
    CHECK(before >= (size_t)1 << 40);
    return passed();
}
