/* Alignment: every power of two to 1 GiB through every function that takes one, the alignment that
 * plain malloc owes by size, and what is refused. */
#include "check.h"
#include <malloc.h>
#include <stddef.h>

static int aligned_to(const void *block, size_t alignment) {
    return ((uintptr_t)block & (alignment - 1)) == 0;
}

static void use_and_free(unsigned char *block, size_t alignment, size_t size) {
    CHECK(block != NULL);
    CHECK(aligned_to(block, alignment));
    CHECK(malloc_usable_size(block) >= size);
    fill(block, size);
    CHECK(holds(block, size));
    free(block);
}

int main(void) {
    require_preload();
    for (size_t alignment = sizeof(void *); alignment <= ((size_t)1 << 30); alignment *= 2) {
        const size_t sizes[] = {1, alignment - 1, alignment, alignment + 1, 3 * alignment / 2, 100};
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            /* Past 64 MiB only the ends of a block are written (see fill). */
            void *block = NULL;
            size_t size = sizes[i] > 96 * MIB ? 96 * MIB : sizes[i];
            CHECK(posix_memalign(&block, alignment, size) == 0);
            use_and_free(block, alignment, size);
            use_and_free(aligned_alloc(alignment, size), alignment, size);
            use_and_free(memalign(alignment, size), alignment, size);
        }
    }

    /* Many at once do not overlap. */
    static void *held[10][64];
    for (size_t power = 4; power < 14; power++)
        for (size_t i = 0; i < 64; i++) {
            CHECK(posix_memalign(&held[power - 4][i], (size_t)1 << power, 40 * i + 1) == 0);
            fill(held[power - 4][i], 40 * i + 1);
        }
    for (size_t power = 4; power < 14; power++)
        for (size_t i = 0; i < 64; i++) {
            CHECK(aligned_to(held[power - 4][i], (size_t)1 << power));
            CHECK(holds(held[power - 4][i], 40 * i + 1));
            free(held[power - 4][i]);
        }

    /* An aligned block may be reallocated; its contents move along. */
    for (size_t alignment = 16; alignment <= 4 * MIB; alignment *= 4) {
        unsigned char *block = aligned_alloc(alignment, alignment);
        CHECK(block != NULL && aligned_to(block, alignment));
        memset(block, 0x5a, 16);
        block = realloc(block, 3 * alignment + 5);
        CHECK(block != NULL);
        for (size_t i = 0; i < 16; i++) CHECK(block[i] == 0x5a);
        free(block);
    }

    for (size_t size = 1; size < 70000; size += size < 2000 ? 1 : 997) {
        void *block = malloc(size);
        CHECK(block != NULL);
        CHECK(aligned_to(block, size >= _Alignof(max_align_t) ? _Alignof(max_align_t) : 8));
        free(block);
    }

    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    use_and_free(valloc(10), page, 10);
    use_and_free(valloc(0), page, 0);
    unsigned char *pages = pvalloc(page + 1);
    CHECK(malloc_usable_size(pages) >= 2 * page);
    use_and_free(pages, page, 2 * page);
    use_and_free(pvalloc(0), page, 0);

    void *untouched = &untouched;
    CHECK(posix_memalign(&untouched, 3, 10) == EINVAL);
    CHECK(posix_memalign(&untouched, 0, 10) == EINVAL);
    CHECK(posix_memalign(&untouched, sizeof(void *) / 2, 10) == EINVAL);
    CHECK(posix_memalign(&untouched, 24, 10) == EINVAL);
    CHECK(posix_memalign(&untouched, 4096, (size_t)PTRDIFF_MAX) == ENOMEM);
    CHECK(posix_memalign(&untouched, (size_t)1 << 62, 10) == ENOMEM);
    CHECK(untouched == &untouched); /* left alone on failure */
    errno = 0;
    CHECK(aligned_alloc(4096, (size_t)PTRDIFF_MAX) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(memalign(4096, SIZE_MAX - 100) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(pvalloc(SIZE_MAX - 100) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(aligned_alloc(3, 10) == NULL && errno == EINVAL);
    return passed();
}
