/* A program that takes privileges from itself must have no thread left that still has them: filters
 * and the promise of no new privileges are a thread's own. Memory comes back all the same when the
 * program goes on allocating. A refused prctl, or one in a child of vfork, changes nothing. */
#include "check.h"
#include "blocks.h"
#include <sys/prctl.h>

static int threads(void) {
    char text[4096];
    read_text("/proc/self/status", text, sizeof text);
    const char *line = strstr(text, "\nThreads:");
    CHECK(line != NULL);
    return atoi(line + 9);
}

enum { BLOCKS = 64 << 10 };
static void *block[BLOCKS];

static void burst(void) {
    take(block, BLOCKS, 1024, 1);
    give_back(block, BLOCKS);
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
    churn_until_resident(base + (peak - base) / 4, 2000, 10);
    CHECK(threads() == 1);
    return passed();
}
