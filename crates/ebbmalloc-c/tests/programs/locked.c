/* mlockall: memory is locked, so it cannot be returned, but nothing may break and nothing may be
 * populated that was only reserved. Argument: future (MCL_CURRENT | MCL_FUTURE), onfault, or late
 * (locked after a burst was freed). */
#include "check.h"
#include <sys/resource.h>

#ifndef MCL_ONFAULT
#define MCL_ONFAULT 4
#endif

int main(int count, char **arguments) {
    require_preload();
    CHECK(count == 2);
    int flags = MCL_CURRENT | MCL_FUTURE;
    if (strcmp(arguments[1], "onfault") == 0) flags |= MCL_ONFAULT;
    int late = strcmp(arguments[1], "late") == 0;
    /* Needs CAP_IPC_LOCK or `ulimit -l` of 512 MiB. */
    if (!late) CHECK(mlockall(flags) == 0);
    enum { BLOCKS = 32 << 10 };
    static void *block[BLOCKS];
    for (int round = 0; round < 4; round++) {
        for (size_t i = 0; i < BLOCKS; i++) {
            block[i] = malloc(2048);
            CHECK(block[i] != NULL);
            fill(block[i], 2048);
        }
        CHECK(resident_bytes() < 512 * MIB);
        for (size_t i = 0; i < BLOCKS; i++) {
            CHECK(holds(block[i], 2048));
            free(block[i]);
        }
        if (late && round == 1) CHECK(mlockall(flags) == 0);
        void *large = malloc(80 * MIB);
        CHECK(large != NULL);
        fill(large, 80 * MIB);
        large = realloc(large, 120 * MIB);
        CHECK(large != NULL);
        free(large);
        sleep_ms(600);
    }
    unsigned char *zeroed = calloc(64, MIB);
    CHECK(zeroed != NULL);
    for (size_t i = 0; i < 64 * MIB; i += 512) CHECK(zeroed[i] == 0);
    free(zeroed);
    CHECK(resident_bytes() < 512 * MIB);
    CHECK(munlockall() == 0);
    struct churn set;
    churn_start(&set, 5);
    for (int i = 0; i < 30000; i++) churn_step(&set);
    churn_end(&set);
    return passed();
}
