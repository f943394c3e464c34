/* A signal handler that forks, or leaves its namespaces, while its thread is inside malloc or in the middle of a start of the
 * allocator's own thread. The child allocates in the handler. Arguments: fork or unshare, how many times. */
#include "check.h"
#include <sched.h>
#include <stdatomic.h>

enum { HANG_SECONDS = 30 };

static atomic_long handled;
static atomic_int over;
static long wanted;
static int forks;
static pthread_t main_thread;

static void allocate(size_t count) {
    void *block[64];
    for (size_t i = 0; i < count; i++) {
        block[i] = malloc(16 + i * 100);
        CHECK(block[i] != NULL);
        fill(block[i], 16 + i * 100);
    }
    for (size_t i = 0; i < count; i++) {
        CHECK(holds(block[i], 16 + i * 100));
        free(block[i]);
    }
}

static void handle(int signal) {
    (void)signal;
    int saved_errno = errno;
    if (forks) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(HANG_SECONDS);
            allocate(64);
            _exit(0);
        }
        reap(child);
    } else {
        CHECK(unshare(CLONE_FS) == 0);
    }
    atomic_fetch_add(&handled, 1);
    errno = saved_errno;
}

static void *keep_sending(void *unused) {
    (void)unused;
    long seen = -1;
    double since = now_seconds();
    while (!atomic_load(&over)) {
        long now = atomic_load(&handled);
        if (now == seen) {
            if (now_seconds() - since > HANG_SECONDS) {
                say(forks ? "hangs in fork\n" : "hangs in unshare\n");
                _exit(97);
            }
            sched_yield();
            continue;
        }
        seen = now;
        since = now_seconds();
        if (now < wanted) {
            CHECK(pthread_kill(main_thread, SIGUSR1) == 0);
        }
    }
    return NULL;
}

static void *keep_allocating(void *unused) {
    (void)unused;
    while (!atomic_load(&over)) {
        allocate(64);
        usleep(100);
    }
    return NULL;
}

int main(int count, char **arguments) {
    require_preload();
    CHECK(count == 3);
    forks = strcmp(arguments[1], "fork") == 0;
    wanted = atol(arguments[2]);
    main_thread = pthread_self();
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    pthread_t thread[2];
    CHECK(pthread_create(&thread[0], NULL, keep_allocating, NULL) == 0);
    CHECK(pthread_create(&thread[1], NULL, keep_sending, NULL) == 0);
    struct churn set;
    churn_start(&set, 3);
    while (atomic_load(&handled) < wanted) {
        churn_step(&set);
        /* So much freed that it is worth a thread. */
        void *block[10];
        for (size_t i = 0; i < 10; i++) CHECK((block[i] = malloc(300000)) != NULL);
        for (size_t i = 0; i < 10; i++) free(block[i]);
    }
    atomic_store(&over, 1);
    for (size_t i = 0; i < 2; i++) CHECK(pthread_join(thread[i], NULL) == 0);
    churn_end(&set);
    return passed();
}
