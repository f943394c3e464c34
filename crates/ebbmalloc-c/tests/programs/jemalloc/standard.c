/* malloc, calloc, realloc and free as jemalloc defines their edges. */
#include "control.h"

int main(void) {
    require_preload();
    soil();
    /* No bytes: a block of its own each time, which can be freed. */
    void *first = malloc(0), *second = malloc(0), *third = calloc(0, 8), *fourth = calloc(8, 0);
    CHECK(first != NULL && second != NULL && third != NULL && fourth != NULL);
    CHECK(first != second && third != fourth);
    free(first), free(second), free(third), free(fourth);
    free(NULL);
    CHECK(malloc_usable_size(NULL) == 0);

    for (size_t size = 1; size < 6 * MIB; size = size * 2 + 1) {
        unsigned char *block = calloc(1, size);
        CHECK(block != NULL && reads_zero(block, 0, size) && is_aligned(block, size < 16 ? 8 : 16));
        fill(block, size);
        /* All that is usable may be written, and the next calloc is not allowed to show it. */
        memset(block, 0x77, malloc_usable_size(block));
        free(block);
        block = calloc(size, 1);
        CHECK(block != NULL && reads_zero(block, 0, size));
        fill(block, size);
        block = realloc(block, 2 * size + 9);
        CHECK(block != NULL);
        CHECK(malloc_usable_size(block) >= 2 * size + 9);
        free(block);
    }
    /* Contents survive growth and shrinking. */
    for (size_t size = 16; size < 2 * MIB; size *= 3) {
        unsigned char *block = malloc(size);
        for (size_t i = 0; i < size; i++) block[i] = (unsigned char)(i * 7 + i / 251);
        block = realloc(block, size * 2);
        CHECK(block != NULL);
        for (size_t i = 0; i < size; i++) CHECK(block[i] == (unsigned char)(i * 7 + i / 251));
        block = realloc(block, size / 2);
        CHECK(block != NULL);
        for (size_t i = 0; i < size / 2; i++) CHECK(block[i] == (unsigned char)(i * 7 + i / 251));
        free(block);
    }
    void *block = realloc(NULL, 100);
    CHECK(block != NULL && malloc_usable_size(block) >= 100);
    free(block);
    return passed();
}
