/* A sibling thread sends signals without a pause that the scheduler would notice; the handler
 * allocates and frees while its thread is inside malloc or free. Deliveries are counted in the
 * handler; a second thread frees what handlers handed over. Arguments: how many deliveries; whether
 * request hooks are installed, which allocate as well. */
#include "check.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/prctl.h>

static atomic_long delivered;
static atomic_int stop;
static atomic_uintptr_t handed_over;
static pid_t target_thread;

static void on_signal(int number) {
    (void)number;
    int saved_errno = errno;
    static uint64_t random = 9;
    size_t size = mixed_size(&random);
    void *block = malloc(size);
    CHECK(block != NULL);
    fill(block, size);
    void *other = malloc(1 + size % 100);
    CHECK(other != NULL && other != block);
    CHECK(holds(block, size));
    free(block);
    free((void *)atomic_exchange(&handed_over, (uintptr_t)other));
    atomic_fetch_add(&delivered, 1);
    errno = saved_errno;
}

extern int mallctl(const char *, void *, size_t *, void *, size_t) __attribute__((weak));

static atomic_long told;

static void allocate_inside(void) {
    void *block = malloc(100 + atomic_fetch_add(&told, 1) % 1000);
    CHECK(block != NULL);
    free(block);
}

static void on_allocation(void *extra, int type, void *result, uintptr_t raw, uintptr_t args[3]) {
    (void)extra, (void)type, (void)args;
    CHECK((uintptr_t)result == raw);
    allocate_inside();
}

static void on_free(void *extra, int type, void *address, uintptr_t args[3]) {
    (void)extra, (void)type;
    CHECK((uintptr_t)address == args[0]);
    allocate_inside();
}

static void install_hooks(void) {
    void *hooks[4] = {(void *)on_allocation, (void *)on_free, NULL, NULL};
    void *handle = NULL;
    size_t length = sizeof handle;
    CHECK(mallctl("experimental.hooks.install", &handle, &length, hooks, sizeof hooks) == 0);
}

static void *free_handed_over(void *unused) {
    (void)unused;
    while (!atomic_load(&stop)) {
        free((void *)atomic_exchange(&handed_over, 0));
        usleep(200);
    }
    return NULL;
}

static void *send(void *count) {
    long wanted = *(long *)count;
    pid_t process = getpid();
    /* Sleeping instead of spinning: on a busy machine the target needs the processor. */
    CHECK(prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0) == 0);
    struct timespec pause = {0, 2000};
    while (atomic_load(&delivered) < wanted) {
        CHECK(syscall(SYS_tgkill, process, target_thread, SIGUSR1) == 0);
        nanosleep(&pause, NULL);
    }
    atomic_store(&stop, 1);
    return NULL;
}

int main(int count, char **arguments) {
    require_preload();
    CHECK(count == 3);
    bool hooked = strcmp(arguments[2], "hooked") == 0;
    if (hooked) install_hooks();
    long wanted = atol(arguments[1]);
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    target_thread = (pid_t)syscall(SYS_gettid);
    /* Only the main thread is to be interrupted. */
    pthread_t sender, freer;
    CHECK(pthread_create(&sender, NULL, send, &wanted) == 0);
    CHECK(pthread_create(&freer, NULL, free_handed_over, NULL) == 0);
    struct churn set;
    churn_start(&set, 4);
    while (!atomic_load(&stop)) churn_step(&set);
    churn_end(&set);
    CHECK(pthread_join(sender, NULL) == 0);
    CHECK(pthread_join(freer, NULL) == 0);
    CHECK(atomic_load(&delivered) >= wanted);
    CHECK((atomic_load(&told) > 0) == hooked);
    free((void *)atomic_load(&handed_over));
    return passed();
}
