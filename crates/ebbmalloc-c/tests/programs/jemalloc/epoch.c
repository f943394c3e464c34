/* epoch: moves only when it is written, whatever is written; statistics stand still in between. */
#include "control.h"

int main(void) {
    require_preload();
    uint64_t first = GET(uint64_t, "epoch");
    CHECK(first > 0 && GET(uint64_t, "epoch") == first);
    SET(uint64_t, "epoch", 12345);
    CHECK(GET(uint64_t, "epoch") == first + 1);
    /* Read and written at once, the new number comes back. */
    CHECK(SWAP(uint64_t, "epoch", 0) == first + 2);

    size_t allocated = GET(size_t, "stats.allocated");
    void *block = malloc(10 * MIB);
    CHECK(block != NULL && GET(size_t, "stats.allocated") == allocated);
    refresh();
    CHECK(GET(size_t, "stats.allocated") >= allocated + 10 * MIB);
    free(block);
    CHECK(GET(size_t, "stats.allocated") >= allocated + 10 * MIB);
    refresh();
    CHECK(GET(size_t, "stats.allocated") < allocated + MIB);

    uint32_t narrow = 1;
    CHECK(mallctl("epoch", NULL, NULL, &narrow, sizeof narrow) == EINVAL);
    return passed();
}
