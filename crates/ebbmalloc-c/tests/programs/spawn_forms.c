/* Every other way to a new process: raw clone and _Fork, which run no fork handlers, vfork,
 * posix_spawn and exec over a running allocator. The raw children go on allocating, from a parent
 * whose allocator has already purged, and with sibling threads asleep. Arguments: the form, how
 * many times. Called with "child" it is what exec starts. */
#include "check.h"
#include <sched.h>
#include <spawn.h>

extern char **environ;

static pthread_barrier_t ready;

static void *allocate_and_sleep(void *seed) {
    struct churn set;
    churn_start(&set, (uintptr_t)seed);
    for (int i = 0; i < 3000; i++) churn_step(&set);
    pthread_barrier_wait(&ready);
    for (;;) pause();
    return NULL;
}

static void burst(void) {
    enum { BLOCKS = 20000 };
    static void *block[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) {
        block[i] = malloc(1000 + i % 1000);
        CHECK(block[i] != NULL);
        fill(block[i], 1000 + i % 1000);
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        CHECK(holds(block[i], 1000 + i % 1000));
        free(block[i]);
    }
}

static void allocate_in_child(struct churn *set) {
    alarm(60);
    for (int i = 0; i < 500; i++) churn_step(set);
    burst();
    churn_end(set);
    _exit(0);
}

static void exec_self(void) {
    char *const argv[] = {(char *)"spawn_forms", (char *)"child", NULL};
    execve("/proc/self/exe", argv, environ);
    _exit(97);
}

static void run_form(const char *form, struct churn *set) {
    pid_t child;
    if (strcmp(form, "clone") == 0) {
        child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (child == 0) allocate_in_child(set);
    } else if (strcmp(form, "_Fork") == 0) {
#ifdef __GLIBC__
        child = _Fork();
#else
        child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
#endif
        if (child == 0) allocate_in_child(set);
    } else if (strcmp(form, "vfork") == 0) {
        child = vfork();
        if (child == 0) exec_self();
    } else if (strcmp(form, "fork_exec") == 0) {
        child = fork();
        if (child == 0) {
            free(malloc(1000));
            exec_self();
        }
    } else {
        CHECK(strcmp(form, "posix_spawn") == 0);
        char *const argv[] = {(char *)"spawn_forms", (char *)"child", NULL};
        CHECK(posix_spawn(&child, "/proc/self/exe", NULL, NULL, argv, environ) == 0);
    }
    CHECK(child > 0);
    for (int i = 0; i < 50; i++) churn_step(set);
    reap(child);
}

int main(int count, char **arguments) {
    require_preload();
    struct churn set;
    churn_start(&set, 7);
    for (int i = 0; i < 2000; i++) churn_step(&set);
    if (count == 2 && strcmp(arguments[1], "child") == 0) {
        churn_end(&set);
        return 0;
    }
    CHECK(count == 3);
    long turns = atol(arguments[2]);
    CHECK(pthread_barrier_init(&ready, NULL, 3) == 0);
    for (long turn = 0; turn < turns; turn++) {
        /* The first half is single-threaded but for what the allocator itself has started. */
        if (turn == turns / 2) {
            pthread_t thread;
            CHECK(pthread_create(&thread, NULL, allocate_and_sleep, (void *)1) == 0);
            CHECK(pthread_create(&thread, NULL, allocate_and_sleep, (void *)2) == 0);
            pthread_barrier_wait(&ready);
            sleep_ms(20);
        }
        if (turn % 10 == 0) burst();
        if (turn % 10 == 5) sleep_ms(120);
        run_form(arguments[1], &set);
    }
    churn_end(&set);
    return passed();
}
