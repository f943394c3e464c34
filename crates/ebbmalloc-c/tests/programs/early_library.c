/* Preloaded with the allocator: allocates in its constructor, before main and, when it stands first in LD_PRELOAD,
 * before the allocator's own constructors; frees at exit, after main. */
#include "check.h"

#define COUNT 600

static void *early_block[COUNT];
static size_t early_size[COUNT];

__attribute__((constructor(101))) static void allocate_early(void) {
    uint64_t random = 12345;
    for (size_t i = 0; i < COUNT; i++) {
        early_size[i] = mixed_size(&random);
        early_block[i] = MUST(i % 3 == 0 ? calloc(1, early_size[i]) : malloc(early_size[i]));
        fill(early_block[i], early_size[i]);
        if (i % 5 == 4) {
            RELEASE(early_block[i - 1], early_size[i - 1]);
            early_block[i - 1] = NULL;
        }
    }
}

/* main asks for this to see that the constructor ran at all. */
int early_blocks_hold(void) {
    for (size_t i = 0; i < COUNT; i++)
        if (early_block[i] != NULL && !holds(early_block[i], early_size[i])) return 0;
    return early_block[0] != NULL;
}

__attribute__((destructor)) static void free_late(void) {
    for (size_t i = 0; i < COUNT; i++) {
        if (early_block[i] == NULL) continue;
        RELEASE(early_block[i], early_size[i]);
    }
    free(MUST(malloc(100)));
}
