/* A process whose heap is trimmed four times a second.
 *
 * Preloaded under glibc's malloc with MALLOC_ARENA_MAX=1 (a trim leaves the tops of other arenas) it shows how
 * low glibc's resident memory can be held from outside, at any cost: the floor that the workloads compare
 * with. It defines no malloc, so glibc stays in charge. A forked child has no threads of its parent: it starts its own.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <time.h>
#include <unistd.h>

enum { INTERVAL_NS = 250 * 1000 * 1000 };

static void *trim(void *unused) {
    (void)unused;
    const struct timespec interval = {.tv_sec = 0, .tv_nsec = INTERVAL_NS};
    for (;;) {
        nanosleep(&interval, NULL);
        malloc_trim(0);
    }
    return NULL;
}

/* The program's signals are for the program's threads. A process without its trimmer would pass for the floor
 * and not be it, so it ends. */
static void start(void) {
    static const char failed[] = "floor: the thread that trims could not be started\n";
    sigset_t all, before;
    pthread_attr_t attributes;
    pthread_t thread;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 4 * (size_t)PTHREAD_STACK_MIN);
    if (pthread_create(&thread, &attributes, trim, NULL) != 0) {
        (void)!write(STDERR_FILENO, failed, sizeof failed - 1);
        _exit(70);
    }
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

__attribute__((constructor)) static void begin(void) {
    pthread_atfork(NULL, NULL, start);
    start();
}
