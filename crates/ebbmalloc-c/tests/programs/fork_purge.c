/* A forked child gives its own bursts back: 90 % within 30 s, by its own purger, also where no fork
 * handler ran. The parent has purged before. Argument: fork or clone. */
#include "check.h"

static void burst_returns(size_t blocks) {
    static void *block[200000];
    CHECK(blocks <= 200000);
    size_t before = resident_bytes();
    for (size_t i = 0; i < blocks; i++) {
        block[i] = malloc(1024);
        CHECK(block[i] != NULL);
        memset(block[i], 1, 1024);
    }
    size_t peak = resident_bytes();
    CHECK(peak > before + blocks * 900);
    for (size_t i = 0; i < blocks; i++) free(block[i]);
    double limit = now_seconds() + 30;
    while (resident_bytes() > before + (peak - before) / 10) {
        CHECK(now_seconds() < limit);
        sleep_ms(50);
    }
}

int main(int count, char **arguments) {
    require_preload();
    CHECK(count == 2);
    burst_returns(64 << 10);
    for (int turn = 0; turn < 3; turn++) {
        pid_t child = strcmp(arguments[1], "clone") == 0
                          ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)
                          : fork();
        CHECK(child >= 0);
        if (child == 0) {
            burst_returns(64 << 10);
            _exit(0);
        }
        if (turn == 1) burst_returns(64 << 10);
        reap(child);
    }
    burst_returns(64 << 10);
    return passed();
}
