/* A sibling thread sends signals without a pause that the scheduler would notice; the handler
 * allocates and frees while its thread is inside malloc or free. Deliveries are counted in the
 * handler; a second thread frees what handlers handed over. Argument: how many deliveries. */
#include "check.h"
#include <stdatomic.h>
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
    CHECK(count >= 2);
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
    free((void *)atomic_load(&handed_over));
    return passed();
}
