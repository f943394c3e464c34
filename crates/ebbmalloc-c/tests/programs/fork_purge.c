/* A forked child gives its own bursts back: 90 % within 30 s, by its own purger, also where no fork
 * handler ran. The parent has purged before. Arguments: fork or clone; MiB that an emulator may take beside (none). */
#include "check.h"

enum { BLOCKS = 64 << 10 };

static void *block[BLOCKS];
static size_t base; /* resident before the first burst */
static size_t beside;

static void burst_returns(void) {
    for (size_t i = 0; i < BLOCKS; i++) {
        block[i] = malloc(1024);
        CHECK(block[i] != NULL);
        memset(block[i], 1, 1024);
    }
    size_t peak = resident_bytes();
    CHECK(peak > base + BLOCKS * (size_t)900);
    for (size_t i = 0; i < BLOCKS; i++) free(block[i]);
    double limit = now_seconds() + 30;
    while (resident_bytes() > base + (peak - base) / 10 + beside) {
        CHECK(now_seconds() < limit);
        sleep_ms(50);
    }
}

int main(int count, char **arguments) {
    require_preload();
    CHECK(count == 2 || count == 3);
    if (count == 3) beside = (size_t)atol(arguments[2]) * MIB;
    memset(block, 1, sizeof block);
    base = resident_bytes();
    burst_returns();
    for (int turn = 0; turn < 3; turn++) {
        pid_t child = strcmp(arguments[1], "clone") == 0
                          ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)
                          : fork();
        CHECK(child >= 0);
        if (child == 0) {
            burst_returns();
            _exit(0);
        }
        if (turn == 1) burst_returns();
        reap(child);
    }
    burst_returns();
    return passed();
}
