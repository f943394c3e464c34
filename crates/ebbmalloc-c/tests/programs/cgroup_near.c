/* Near the limit of its cgroup (72 of 80 MiB live) a program of one thread goes on freeing and
 * taking, so that the purger stays and looks at the limit: what it opens must never have the
 * number that the program's next descriptor is expected to have. Memory goes back all the while. */
#include "check.h"

int main(void) {
    require_preload();
    int expected = open("/dev/null", O_RDONLY);
    CHECK(expected >= 0);
    CHECK(close(expected) == 0);
    for (size_t i = 0; i < 72 * MIB / 4096; i++) {
        char *block = malloc(4000);
        CHECK(block != NULL);
        memset(block, 1, 4000);
    }
    double end = now_seconds() + 4;
    char *block = NULL;
    for (unsigned turn = 0; now_seconds() < end; turn++) {
        if (turn % 20000 == 0) {
            free(block);
            block = malloc(3 * MIB);
            CHECK(block != NULL);
            memset(block, 1, 3 * MIB);
        }
        int file = open("/dev/null", O_RDONLY);
        CHECK(file == expected);
        CHECK(close(file) == 0);
    }
    return passed();
}
