/* posix_memalign: alignments, refusals by return value, errno and the result left alone. */
#include "control.h"

int main(void) {
    require_preload();
    void *const mark = (void *)(uintptr_t)0x5a5a;
    for (size_t alignment = sizeof(void *); alignment <= 8 * MIB; alignment *= 2)
        for (size_t size = 1; size <= MIB; size = size * 5 + 2) {
            void *block = mark;
            CHECK(posix_memalign(&block, alignment, size) == 0);
            CHECK(block != NULL && block != mark && is_aligned(block, alignment));
            CHECK(malloc_usable_size(block) >= size);
            fill(block, size);
            /* It may be resized like any other. */
            void *grown = realloc(block, size + 300);
            CHECK(grown != NULL && grown != mark);
            CHECK(malloc_usable_size(grown) >= size + 300);
            free(grown);
        }
    static const size_t bad[] = {0, 1, 2, sizeof(void *) / 2, 3 * sizeof(void *), SIZE_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        volatile size_t alignment = bad[i];
        void *block = mark;
        errno = 77;
        CHECK(posix_memalign(&block, alignment, 8) == EINVAL);
        CHECK(block == mark && errno == 77);
    }
    volatile size_t half = (size_t)1 << 63;
    const size_t pairs[][2] = {{half, 1}, {half, half}, {64, SIZE_MAX}, {4096, SIZE_MAX - 4095}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        void *block = mark;
        CHECK(posix_memalign(&block, pairs[i][0], pairs[i][1]) == ENOMEM && block == mark);
    }
    void *block = mark;
    CHECK(posix_memalign(&block, 64, 0) == 0 && block != NULL && is_aligned(block, 64));
    free(block);
    return passed();
}
