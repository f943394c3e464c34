/* A resolver of an indirect function that allocates, in the program or, with -DIN_LIBRARY, in a
 * library that is relocated before the allocator. The block must be whole and can be freed. */
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
    unsigned char *kept = resolver_block();
    CHECK(kept != NULL);
    for (int i = 0; i < 100; i++) CHECK(kept[i] == i);
    struct churn set;
    churn_start(&set, 2);
    for (int i = 0; i < 20000; i++) churn_step(&set);
    churn_end(&set);
    for (int i = 0; i < 100; i++) CHECK(kept[i] == i);
    free(kept);
    return passed();
}
