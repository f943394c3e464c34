/* xallocx: never moves, tells the size that is, takes extra where there is some, zeros what is new. */
#include "control.h"

static void small_blocks_stay(void) {
    for (size_t size = 1; size <= 2048; size = size * 2 + 1) {
        unsigned char *block = mallocx(size, 0);
        size_t usable = sallocx(block, 0);
        memset(block, 0x61, usable);
        CHECK(xallocx(block, size, 0, 0) == usable);
        CHECK(xallocx(block, usable, 0, 0) == usable);
        CHECK(xallocx(block, 1, 0, 0) == usable || size > 8);
        /* It cannot grow where it is. */
        CHECK(xallocx(block, usable * 8, 0, 0) == usable);
        CHECK(xallocx(block, usable + 1, usable * 8, 0) == usable);
        CHECK(sallocx(block, 0) == usable);
        for (size_t i = 0; i < usable; i++) CHECK(block[i] == 0x61);
        dallocx(block, 0);
    }
}

static void large_blocks_shrink_and_grow_back(void) {
    unsigned char *block = mallocx(8 * MIB, 0);
    CHECK(block != NULL);
    memset(block, 0x62, 8 * MIB);
    size_t shrunk = xallocx(block, 4 * MIB, 0, 0);
    CHECK(shrunk >= 4 * MIB && shrunk < 8 * MIB && shrunk == sallocx(block, 0));
    for (size_t i = 0; i < 4 * MIB; i += 512) CHECK(block[i] == 0x62);
    /* Growth may find its place taken: then the size stays. New bytes are zero when asked for. */
    size_t grown = xallocx(block, 6 * MIB, 0, MALLOCX_ZERO);
    CHECK(grown == sallocx(block, 0) && (grown == shrunk || grown >= 6 * MIB));
    CHECK(reads_zero(block, shrunk, grown));
    for (size_t i = 0; i < 4 * MIB; i += 512) CHECK(block[i] == 0x62);
    dallocx(block, 0);
}

static void extra_is_a_wish(void) {
    void *block = mallocx(2 * MIB, 0);
    size_t usable = sallocx(block, 0);
    size_t got = xallocx(block, 2 * MIB, 2 * MIB, 0);
    CHECK(got >= usable && got <= nallocx(4 * MIB, 0) && got == sallocx(block, 0));
    /* size + extra may not be representable: it is cut, the call stays harmless. */
    got = xallocx(block, usable, SIZE_MAX - usable, 0);
    CHECK(got >= usable && got == sallocx(block, 0));
    CHECK(xallocx(block, SIZE_MAX, 0, 0) == got);
    CHECK(xallocx(block, (size_t)1 << 63, SIZE_MAX >> 1, 0) == got);
    dallocx(block, 0);
}

int main(void) {
    require_preload();
    soil();
    small_blocks_stay();
    large_blocks_shrink_and_grow_back();
    extra_is_a_wish();
    return passed();
}
