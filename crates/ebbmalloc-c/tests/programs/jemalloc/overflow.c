/* Sizes that cannot be: null and ENOMEM from every function, nothing changed. */
#include "control.h"

int main(void) {
    require_preload();
    /* The last lextent class is the greatest size there is. */
    unsigned classes = GET(unsigned, "arenas.nlextents");
    CHECK(classes > 0);
    size_t greatest = GET(size_t, named("arenas.lextent.%u.size", classes - 1));
    CHECK(greatest > MIB && greatest < SIZE_MAX);
    const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 4096, PTRDIFF_MAX, (size_t)PTRDIFF_MAX + 1,
                            greatest + 1};
    unsigned char *held = malloc(500);
    memset(held, 0x13, 500);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        volatile size_t size = sizes[i];
        void *block = NULL;
        errno = 0;
        CHECK(malloc(size) == NULL && errno == ENOMEM);
        errno = 0;
        CHECK(calloc(1, size) == NULL && errno == ENOMEM);
        CHECK(realloc(held, size) == NULL);
        errno = 0;
        CHECK(realloc(NULL, size) == NULL && errno == ENOMEM);
        errno = 0;
        CHECK(aligned_alloc(64, size) == NULL && errno == ENOMEM);
        CHECK(memalign(64, size) == NULL);
        CHECK(posix_memalign(&block, 64, size) == ENOMEM && block == NULL);
        CHECK(mallocx(size, 0) == NULL);
        CHECK(rallocx(held, size, 0) == NULL);
        CHECK(xallocx(held, size, 0, 0) == sallocx(held, 0));
        for (int byte = 0; byte < 500; byte++) CHECK(held[byte] == 0x13);
    }
    /* Products that wrap around. */
    volatile size_t half = (size_t)1 << 32;
    errno = 0;
    CHECK(calloc(half, half) == NULL && errno == ENOMEM);
    CHECK(calloc(half, half + 1) == NULL && calloc(half + 1, half) == NULL);
    CHECK(calloc(SIZE_MAX, 2) == NULL && calloc(2, SIZE_MAX) == NULL);
    /* The greatest class itself is a request like any other: no memory, no harm. */
    errno = 0;
    void *block = malloc(greatest);
    CHECK(block != NULL || errno == ENOMEM);
    free(block);
    free(held);
    return passed();
}
