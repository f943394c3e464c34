/* aligned_alloc and memalign: every power of two, refusals with their errno, contents apart. */
#include "control.h"

static void powers_of_two(void) {
    for (size_t alignment = 1; alignment <= 4 * MIB; alignment *= 2)
        for (size_t size = 1; size <= 2 * MIB; size = size * 3 + 1) {
            void *held[4];
            for (int i = 0; i < 4; i++) {
                held[i] = aligned_alloc(alignment, size);
                CHECK(held[i] != NULL && is_aligned(held[i], alignment));
                CHECK(malloc_usable_size(held[i]) >= size);
                fill(held[i], size);
            }
            for (int i = 0; i < 4; i++) {
                CHECK(holds(held[i], size));
                free(held[i]);
            }
        }
}

static void bad_alignments(void) {
    static const size_t bad[] = {0, 3, 24, 4097, ((size_t)1 << 63) + 1, SIZE_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        volatile size_t alignment = bad[i];
        errno = 0;
        CHECK(aligned_alloc(alignment, 64) == NULL && errno == EINVAL);
    }
}

static void too_much(void) {
    volatile size_t half = (size_t)1 << 63;
    errno = 0;
    CHECK(aligned_alloc(half, 1) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(aligned_alloc(half, half) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(aligned_alloc(16, SIZE_MAX - 8) == NULL && errno == ENOMEM);
}

static void no_bytes(void) {
    void *first = aligned_alloc(4096, 0), *second = aligned_alloc(4096, 0);
    CHECK(first != NULL && second != NULL && first != second);
    CHECK(is_aligned(first, 4096) && is_aligned(second, 4096));
    free(first);
    free(second);
}

int main(void) {
    require_preload();
    powers_of_two();
    bad_alignments();
    too_much();
    no_bytes();
    void *block = memalign(256, 100);
    CHECK(block != NULL && is_aligned(block, 256));
    free(block);
    block = valloc(100);
    CHECK(block != NULL && is_aligned(block, (size_t)sysconf(_SC_PAGESIZE)));
    free(block);
    return passed();
}
