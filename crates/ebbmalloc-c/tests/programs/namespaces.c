/* unshare and setns want a single-threaded process (and one that shares its working directory with
 * nobody): the allocator's own thread must not stand in the way, without a fork, neither at once
 * after a burst was freed nor later. Arguments: the form, milliseconds between burst and call. */
#include "check.h"
#include <sched.h>

static void burst(void) {
    enum { BLOCKS = 64 << 10 };
    static void *block[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) {
        block[i] = malloc(1024);
        CHECK(block[i] != NULL);
        fill(block[i], 1024);
    }
    for (size_t i = 0; i < BLOCKS; i++) free(block[i]);
}

static int open_namespace(pid_t process, const char *kind) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/%s", (int)process, kind);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0);
    return file;
}

/* A process in namespaces of its own, to be joined. */
static pid_t start_neighbour(int flags) {
    int ready[2];
    CHECK(pipe(ready) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(unshare(flags) == 0);
        CHECK(write(ready[1], "x", 1) == 1);
        alarm(100);
        for (;;) pause();
    }
    char byte;
    CHECK(read(ready[0], &byte, 1) == 1);
    close(ready[0]);
    close(ready[1]);
    return child;
}

int main(int count, char **arguments) {
    require_preload();
    CHECK(count == 3);
    const char *form = arguments[1];
    pid_t neighbour = 0;
    int file = -1, kind = 0;
    if (strcmp(form, "setns_user") == 0) kind = CLONE_NEWUSER;
    if (strcmp(form, "setns_mount") == 0) kind = CLONE_NEWUSER | CLONE_NEWNS;
    if (kind != 0) {
        neighbour = start_neighbour(kind);
        file = open_namespace(neighbour, kind == CLONE_NEWUSER ? "user" : "mnt");
        if (kind != CLONE_NEWUSER) {
            /* The owner's rights in that namespace come with its user namespace. */
            int user = open_namespace(neighbour, "user");
            CHECK(setns(user, CLONE_NEWUSER) == 0);
            close(user);
        }
    }
    burst();
    sleep_ms(atol(arguments[2]));
    if (strcmp(form, "unshare_user") == 0)
        CHECK(unshare(CLONE_NEWUSER) == 0);
    else if (strcmp(form, "unshare_mount") == 0)
        CHECK(unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0);
    else
        CHECK(setns(file, kind == CLONE_NEWUSER ? CLONE_NEWUSER : CLONE_NEWNS) == 0);
    burst();
    struct churn set;
    churn_start(&set, 2);
    for (int i = 0; i < 10000; i++) churn_step(&set);
    churn_end(&set);
    if (neighbour != 0) {
        CHECK(kill(neighbour, SIGKILL) == 0);
        waitpid(neighbour, NULL, 0);
    }
    return passed();
}
