/* A process with four busy threads forks again and again; each child checks its parent's blocks,
 * goes on allocating, every tenth starts a thread, every fiftieth forks itself; the parent's
 * threads never stop. Argument: how many forks. Builds for glibc and musl, shared and static. */
#include "check.h"
#include <stdatomic.h>

static atomic_int stop;

static void *keep_allocating(void *seed) {
    struct churn set;
    churn_start(&set, (uintptr_t)seed);
    while (!atomic_load(&stop)) {
        for (int i = 0; i < 200; i++) churn_step(&set);
        usleep(300);
    }
    churn_end(&set);
    return NULL;
}

static void *allocate_once(void *seed) {
    struct churn set;
    churn_start(&set, (uintptr_t)seed);
    for (int i = 0; i < 300; i++) churn_step(&set);
    churn_end(&set);
    return NULL;
}

static void run_child(struct churn *set, long turn) {
    alarm(60);
    for (int i = 0; i < 200; i++) churn_step(set);
    if (turn % 10 == 0) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, allocate_once, (void *)(turn + 1)) == 0);
        for (int i = 0; i < 100; i++) churn_step(set);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    if (turn % 50 == 0) {
        pid_t grandchild = fork();
        CHECK(grandchild >= 0);
        if (grandchild == 0) {
            churn_end(set);
            _exit(0);
        }
        for (int i = 0; i < 100; i++) churn_step(set);
        reap(grandchild);
    }
    churn_end(set);
    _exit(0);
}

int main(int count, char **arguments) {
    require_preload();
    CHECK(count == 2);
    long forks = atol(arguments[1]);
    pthread_t thread[4];
    for (uintptr_t i = 0; i < 4; i++)
        CHECK(pthread_create(&thread[i], NULL, keep_allocating, (void *)(i + 1)) == 0);
    struct churn set;
    churn_start(&set, 99);
    for (long turn = 0; turn < forks; turn++) {
        for (int i = 0; i < 50; i++) churn_step(&set);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) run_child(&set, turn);
        for (int i = 0; i < 50; i++) churn_step(&set);
        reap(child);
    }
    atomic_store(&stop, 1);
    for (size_t i = 0; i < 4; i++) CHECK(pthread_join(thread[i], NULL) == 0);
    churn_end(&set);
    return passed();
}
