/* realloc(p, 0) by the setting zero_realloc: free, alloc or abort. */
#include "control.h"

int main(void) {
    require_preload();
    const char *mode = GET(const char *, "opt.zero_realloc");
    refresh();
    size_t counted = GET(size_t, "stats.zero_reallocs");
    uint64_t *deallocated = GET(uint64_t *, "thread.deallocatedp");
    void *block = malloc(1000);
    size_t usable = malloc_usable_size(block);
    uint64_t before = *deallocated;
    volatile size_t zero = 0;
    void *result = realloc(block, zero);
    CHECK(strcmp(mode, "abort") != 0);
    CHECK(*deallocated == before + usable);
    if (strcmp(mode, "free") == 0) {
        CHECK(result == NULL);
    } else {
        CHECK(strcmp(mode, "alloc") == 0 && result != NULL);
        free(result);
    }
    refresh();
    CHECK(GET(size_t, "stats.zero_reallocs") == counted + 1);
    /* Of nothing it is an allocation. */
    result = realloc(NULL, zero);
    CHECK(result != NULL);
    free(result);
    return passed();
}
