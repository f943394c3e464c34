/* Under a filter that refuses what the allocator would like to use, installed before the program
 * starts (it installs the filter and executes itself) or while it runs: everything still works, and
 * where a purger can exist 90 % of a burst come back within 30 s; without clone, a burst comes back
 * when the program goes on allocating. Arguments: names, EPERM or ENOSYS, before or late. */
#include "check.h"
#include "blocks.h"
#include "filter.h"
#include <stdatomic.h>

extern char **environ;

static void *allocate(void *seed) {
    struct churn set;
    churn_start(&set, (uintptr_t)seed);
    for (int i = 0; i < 30000; i++) churn_step(&set);
    churn_end(&set);
    return NULL;
}

static size_t base; /* resident before anything was allocated */

static void burst_returns(void) {
    enum { BLOCKS = 128 << 10 };
    static void *block[BLOCKS];
    take(block, BLOCKS, 1024, 1);
    size_t peak = resident_bytes();
    CHECK(peak > base + 100 * MIB);
    give_back(block, BLOCKS);
    churn_until_resident(base + (peak - base) / 6, 500, 30);
}

int main(int count, char **arguments) {
    require_preload();
    CHECK(count == 4);
    int error = strcmp(arguments[2], "EPERM") == 0 ? EPERM : ENOSYS;
    int inside = getenv("EBB_TEST_FILTERED") != NULL;
    int cloning = strstr(arguments[1], "clone") == NULL;
    if (strcmp(arguments[3], "before") == 0 && !inside) {
        CHECK(setenv("EBB_TEST_FILTERED", "1", 1) == 0);
        refuse(arguments[1], error);
        execve("/proc/self/exe", arguments, environ);
        CHECK(!"execve came back");
    }
    base = resident_bytes();
    allocate((void *)1);
    if (!inside) {
        burst_returns();
        refuse(arguments[1], error);
    }
    errno = 0;
    if (!cloning) CHECK(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) == -1 && errno == error);
    pthread_t thread[4];
    for (uintptr_t i = 0; i < 4 && cloning; i++)
        CHECK(pthread_create(&thread[i], NULL, allocate, (void *)(i + 2)) == 0);
    allocate((void *)7);
    for (size_t i = 0; i < 4 && cloning; i++) CHECK(pthread_join(thread[i], NULL) == 0);
    burst_returns();
    if (cloning) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            allocate((void *)8);
            _exit(0);
        }
        reap(child);
    }
    return passed();
}
