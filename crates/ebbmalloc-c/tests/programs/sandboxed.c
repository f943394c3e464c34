/* A program that takes privileges from itself must have no thread left that still has them: filters
 * and the promise of no new privileges are a thread's own. Memory comes back all the same when the
 * program goes on allocating. A refused prctl, or one in a child of vfork, changes nothing. */
#include "check.h"
#include <sys/prctl.h>

static int threads(void) {
    char text[4096];
    int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0);
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    CHECK(length > 0);
    text[length] = 0;
    const char *line = strstr(text, "\nThreads:");
    CHECK(line != NULL);
    return atoi(line + 9);
}

enum { BLOCKS = 64 << 10 };
static void *block[BLOCKS];

static void burst(void) {
    for (size_t i = 0; i < BLOCKS; i++) {
        block[i] = malloc(1024);
        CHECK(block[i] != NULL);
        memset(block[i], 1, 1024);
    }
    for (size_t i = 0; i < BLOCKS; i++) free(block[i]);
}

int main(void) {
    require_preload();
    size_t base = resident_bytes();
    burst();
    CHECK(threads() == 2);

    CHECK(prctl(PR_SET_SECCOMP, 2, NULL) == -1 && errno == EFAULT);
    pid_t child = vfork();
    CHECK(child >= 0);
    if (child == 0) {
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        _exit(0);
    }
    reap(child);
    burst();
    CHECK(threads() == 2);

    CHECK(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
    CHECK(threads() == 1);
    burst();
    size_t peak = resident_bytes();
    CHECK(peak > base + 32 * MIB);
    double limit = now_seconds() + 10;
    struct churn set;
    churn_start(&set, 11);
    while (resident_bytes() > base + (peak - base) / 4) {
        CHECK(now_seconds() < limit);
        for (int i = 0; i < 2000; i++) churn_step(&set);
        sleep_ms(50);
    }
    churn_end(&set);
    CHECK(threads() == 1);
    return passed();
}
