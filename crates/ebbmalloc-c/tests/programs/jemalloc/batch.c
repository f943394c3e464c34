/* experimental.batch_alloc: many blocks of one size by one call. */
#include "control.h"

struct batch {
    void **blocks;
    size_t count, size;
    int flags;
};

static size_t take(struct batch *batch) {
    size_t filled, length = sizeof filled;
    CHECK(mallctl("experimental.batch_alloc", &filled, &length, batch, sizeof *batch) == 0);
    CHECK(filled <= batch->count);
    return filled;
}

int main(void) {
    require_preload();
    static void *blocks[3000];
    for (size_t size = 8; size <= 8192; size *= 4)
        for (int zero = 0; zero <= MALLOCX_ZERO; zero += MALLOCX_ZERO) {
            struct batch batch = {blocks, 3000, size, zero};
            size_t filled = take(&batch);
            CHECK(filled == 3000);
            for (size_t i = 0; i < filled; i++) {
                CHECK(malloc_usable_size(blocks[i]) >= size);
                if (zero) CHECK(reads_zero(blocks[i], 0, size));
                fill(blocks[i], size);
            }
            for (size_t i = 0; i < filled; i++) {
                CHECK(holds(blocks[i], size));
                free(blocks[i]);
            }
        }
    struct batch batch = {blocks, 10, 100, MALLOCX_ALIGN(4096)};
    CHECK(take(&batch) == 10);
    for (int i = 0; i < 10; i++) {
        CHECK(is_aligned(blocks[i], 4096));
        free(blocks[i]);
    }
    size_t filled, length = sizeof filled;
    CHECK(mallctl("experimental.batch_alloc", &filled, &length, &batch, 3) == EINVAL);
    return passed();
}
