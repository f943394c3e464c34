/* A resolver of an indirect function that allocates, in the program or, with -DIN_LIBRARY, in a library that is
 * relocated before the allocator. The block must be whole and can be freed. */
#include "check.h"

#ifdef IN_LIBRARY
extern unsigned char *resolver_block(void);
extern int answer(void);
#else
#include "ifunc_library.c"
#endif

int main(void) {
    require_preload();
    CHECK(answer() == 42);
    unsigned char *kept = MUST(resolver_block());
    for (int i = 0; i < 100; i++) CHECK(kept[i] == i);
    churn(2, 20000);
    for (int i = 0; i < 100; i++) CHECK(kept[i] == i);
    free(kept);
    return passed();
}
