/* A process whose settings show: allocates 64 MiB, frees them, waits as told, prints what is still
 * resident in MiB above the start. Argument: milliseconds to wait. */
#include "check.h"

int main(int count, char **arguments) {
    require_preload();
    CHECK(count == 2);
    enum { BLOCKS = 64 << 10 };
    static void *block[BLOCKS];
    memset(block, 1, sizeof block); /* its own pages are there before the start is measured */
    free(malloc(100));
    size_t start = resident_bytes();
    for (size_t i = 0; i < BLOCKS; i++) {
        block[i] = malloc(1000);
        CHECK(block[i] != NULL);
        memset(block[i], 1, 1000);
    }
    for (size_t i = 0; i < BLOCKS; i++) free(block[i]);
    sleep_ms(atol(arguments[1]));
    size_t now = resident_bytes();
    printf("held %zu\n", now > start ? (now - start) / MIB : 0);
    fflush(stdout);
    return passed();
}
