/* experimental.utilization: what a program that defragments itself asks about its blocks. */
#include "control.h"

struct verbose {
    void *slabcur;
    size_t nfree, nregs, size, bin_nfree, bin_nregs;
};

struct brief {
    size_t nfree, nregs, size;
};

int main(void) {
    require_preload();
    void *small[3], *large = malloc(MIB);
    for (int i = 0; i < 3; i++) small[i] = malloc(100);
    unsigned bins = GET(unsigned, "arenas.nbins");
    unsigned bin = 0;
    while (bin < bins && GET(size_t, named("arenas.bin.%u.size", bin)) < 100) bin++;
    uint32_t regions = GET(uint32_t, named("arenas.bin.%u.nregs", bin));

    struct verbose of_one;
    size_t length = sizeof of_one;
    CHECK(mallctl("experimental.utilization.query", &of_one, &length, &small[0], sizeof(void *)) == 0);
    CHECK(of_one.nregs == regions && of_one.nfree < regions);
    CHECK(of_one.size == GET(size_t, named("arenas.bin.%u.slab_size", bin)));
    CHECK(of_one.bin_nregs >= of_one.nregs && of_one.bin_nfree >= of_one.nfree);
    CHECK(mallctl("experimental.utilization.query", &of_one, &length, &large, sizeof(void *)) == 0);
    CHECK(of_one.nregs == 1 && of_one.nfree == 0 && of_one.size >= MIB);

    void *asked[4] = {small[0], small[1], small[2], large};
    struct brief of_all[4];
    length = sizeof of_all;
    CHECK(mallctl("experimental.utilization.batch_query", of_all, &length, asked, sizeof asked) == 0);
    for (int i = 0; i < 3; i++) CHECK(of_all[i].nregs == regions && of_all[i].nfree < regions);
    CHECK(of_all[3].nregs == 1 && of_all[3].size >= MIB);
    length = sizeof of_all - 1;
    CHECK(mallctl("experimental.utilization.batch_query", of_all, &length, asked, sizeof asked) == EINVAL);
    for (int i = 0; i < 3; i++) free(small[i]);
    free(large);
    return passed();
}
