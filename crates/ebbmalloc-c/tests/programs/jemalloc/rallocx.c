/* rallocx: contents kept, new bytes zero when asked for, alignment by flags, and the block left
 * alone when it cannot be had. */
#include "control.h"

static void grows_and_shrinks(int flags) {
    size_t alignment = (size_t)1 << (flags & 63);
    for (size_t size = 1; size < 3 * MIB; size = size * 2 + 5) {
        unsigned char *block = mallocx(size, flags);
        CHECK(block != NULL);
        size_t usable = sallocx(block, 0);
        memset(block, 0x42, usable);
        block = rallocx(block, size * 3 + 70, flags);
        CHECK(block != NULL && is_aligned(block, alignment) && sallocx(block, 0) >= size * 3 + 70);
        for (size_t i = 0; i < size; i++) CHECK(block[i] == 0x42);
        if (flags & MALLOCX_ZERO) CHECK(reads_zero(block, usable, size * 3 + 70));
        block = rallocx(block, size / 2 + 1, flags);
        CHECK(block != NULL && is_aligned(block, alignment));
        for (size_t i = 0; i < size / 2; i++) CHECK(block[i] == 0x42);
        dallocx(block, flags & ~MALLOCX_ZERO);
    }
}

/* An alignment that the block has not got yet. */
static void aligns_later(void) {
    for (int lg = 4; lg <= 21; lg++) {
        unsigned char *block = mallocx(100, 0);
        memset(block, 0x11, 100);
        block = rallocx(block, 200, MALLOCX_LG_ALIGN(lg));
        CHECK(block != NULL && is_aligned(block, (size_t)1 << lg));
        for (int i = 0; i < 100; i++) CHECK(block[i] == 0x11);
        dallocx(block, 0);
    }
}

static void refuses(void) {
    unsigned char *block = mallocx(4000, 0);
    memset(block, 0x22, 4000);
    CHECK(rallocx(block, SIZE_MAX, 0) == NULL);
    CHECK(rallocx(block, (size_t)1 << 63, MALLOCX_ZERO) == NULL);
    CHECK(rallocx(block, SIZE_MAX - 100, MALLOCX_ALIGN(4096)) == NULL);
    for (int i = 0; i < 4000; i++) CHECK(block[i] == 0x22);
    dallocx(block, 0);
}

int main(void) {
    require_preload();
    soil();
    grows_and_shrinks(0);
    grows_and_shrinks(MALLOCX_ZERO);
    grows_and_shrinks(MALLOCX_ALIGN(128));
    grows_and_shrinks(MALLOCX_ALIGN(8192) | MALLOCX_ZERO);
    grows_and_shrinks(MALLOCX_TCACHE_NONE);
    aligns_later();
    refuses();
    return passed();
}
