/* mallocx and its kin: every alignment with and without zeros, what nallocx promises against what comes, growth and
 * shrinking in place, and requests that cannot be. */
#include "control.h"

#include "../../include/ebbmalloc.h"

/* Only the preloaded object has them. */
#pragma weak mallocx
#pragma weak rallocx
#pragma weak xallocx
#pragma weak sallocx
#pragma weak dallocx
#pragma weak sdallocx
#pragma weak nallocx

static void promises(void) {
    for (int lg = 0; lg <= 22; lg++)
        for (size_t size = 1; size <= 3 * MIB; size += 1 + size / 3) {
            for (int zero = 0; zero <= MALLOCX_ZERO; zero += MALLOCX_ZERO) {
                int flags = MALLOCX_LG_ALIGN(lg) | zero;
                unsigned char *block = mallocx(size, flags);
                CHECK(block != NULL && is_aligned(block, (size_t)1 << lg));
                size_t usable = sallocx(block, flags);
                CHECK(usable >= size && usable == nallocx(size, flags));
                CHECK(usable == malloc_usable_size(block));
                if (zero) CHECK(reads_zero(block, 0, usable));
                memset(block, 0x5a, usable);
                if (size % 2) sdallocx(block, size, flags);
                else dallocx(block, flags);
            }
        }
    CHECK(MALLOCX_ALIGN(4096) == MALLOCX_LG_ALIGN(12));
}

static void growth_keeps_and_zeroes(void) {
    for (int flags = MALLOCX_ZERO; flags <= (MALLOCX_ZERO | 13); flags += 13)
        for (size_t size = 1; size < MIB; size = 2 * size + 3) {
            unsigned char *block = MUST(mallocx(size, flags));
            size_t usable = sallocx(block, 0);
            memset(block, 0x77, usable);
            block = rallocx(block, 3 * size + 40, flags);
            CHECK(block != NULL && sallocx(block, 0) >= 3 * size + 40);
            CHECK(is_aligned(block, (size_t)1 << (flags & 63)));
            size_t kept = usable < 3 * size + 40 ? usable : 3 * size + 40;
            for (size_t i = 0; i < kept; i++) CHECK(block[i] == 0x77);
            CHECK(reads_zero(block, usable, sallocx(block, 0)));
            block = rallocx(block, 1, flags);
            CHECK(block != NULL && block[0] == 0x77);
            dallocx(block, 0);
        }
}

/* Zeros reach to the end of what is usable, whichever cache or arena a block is from. */
static void zeros_from_anywhere(void) {
    unsigned arena = GET(unsigned, "arenas.create"), cache = GET(unsigned, "tcache.create");
    int places[] = {0,
                    MALLOCX_TCACHE_NONE,
                    MALLOCX_TCACHE(cache),
                    MALLOCX_ARENA(arena),
                    MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE,
                    MALLOCX_LG_ALIGN(7)};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        for (size_t size = 1; size < 300000; size = size * 5 / 4 + 1) {
            int flags = places[i] | MALLOCX_ZERO;
            unsigned char *block = MUST(mallocx(size, places[i]));
            memset(block, 0xff, sallocx(block, 0));
            dallocx(block, places[i]);
            block = mallocx(size, flags);
            CHECK(block != NULL && reads_zero(block, 0, sallocx(block, 0)));
            /* Within the slot, and beyond it. */
            size_t usable = sallocx(block, 0);
            CHECK(xallocx(block, usable, 0, flags) == usable);
            CHECK(reads_zero(block, 0, usable));
            block = rallocx(block, size * 2 + 7, flags);
            CHECK(block != NULL && reads_zero(block, 0, sallocx(block, 0)));
            dallocx(block, places[i]);
        }
    SET(unsigned, "tcache.destroy", cache);
}

static void in_place(void) {
    /* A slot stays what it is. */
    void *slot = mallocx(100, 0);
    size_t usable = sallocx(slot, 0);
    CHECK(xallocx(slot, 100, 0, 0) == usable && xallocx(slot, 1, 0, 0) == usable);
    CHECK(xallocx(slot, 1000, 5000, 0) == usable);
    dallocx(slot, 0);

    /* A large block shrinks where it is, and grows into what it left, with zeros if asked to. */
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *block = mallocx(4 * MIB, 0);
    memset(block, 0x31, 4 * MIB);
    CHECK(xallocx(block, MIB, 0, 0) == MIB);
    CHECK(xallocx(block, 2 * MIB, 0, MALLOCX_ZERO) == 2 * MIB);
    CHECK(block[MIB - 1] == 0x31 && reads_zero(block, MIB, 2 * MIB));
    CHECK(xallocx(block, 2 * MIB, MIB, 0) == 3 * MIB);
    /* Long enough already, and not too long. */
    CHECK(xallocx(block, MIB, 2 * MIB, 0) == 3 * MIB);
    /* Not below the smallest large block. */
    CHECK(xallocx(block, 100, 100, 0) == 3 * MIB);
    CHECK(xallocx(block, 100, 64 * 1024, 0) == 64 * 1024 + page);
    CHECK(xallocx(block, SIZE_MAX / 2, SIZE_MAX, 0) == 64 * 1024 + page);
    /* An alignment that the block has not got cannot be had in place. */
    if ((uintptr_t)block % (256 * MIB) != 0) CHECK(xallocx(block, MIB, 0, MALLOCX_LG_ALIGN(28)) == 64 * 1024 + page);
    dallocx(block, 0);
}

static void cannot_be(void) {
    errno = 0;
    CHECK(mallocx(SIZE_MAX, 0) == NULL && mallocx(PTRDIFF_MAX, 0) == NULL);
    CHECK(mallocx(1, MALLOCX_LG_ALIGN(63)) == NULL && mallocx(1, MALLOCX_LG_ALIGN(62)) == NULL);
    CHECK(mallocx(SIZE_MAX - 10, MALLOCX_ZERO | MALLOCX_LG_ALIGN(20)) == NULL);
    CHECK(nallocx(SIZE_MAX, 0) == 0 && nallocx(1, MALLOCX_LG_ALIGN(63)) == 0);
    CHECK(nallocx((size_t)PTRDIFF_MAX + 1, MALLOCX_LG_ALIGN(5)) == 0);
    unsigned char *block = mallocx(77, 0);
    block[76] = 9;
    CHECK(rallocx(block, SIZE_MAX, 0) == NULL && block[76] == 9);
    CHECK(rallocx(block, SIZE_MAX, MALLOCX_ZERO | MALLOCX_LG_ALIGN(12)) == NULL && block[76] == 9);
    dallocx(block, 0);
}

int main(void) {
    require_preload();
    soil();
    promises();
    growth_keeps_and_zeroes();
    zeros_from_anywhere();
    in_place();
    cannot_be();
    return passed();
}
