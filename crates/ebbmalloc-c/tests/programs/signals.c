/* Signal handlers that allocate, fork or part while their thread is inside malloc or free. */
#include "check.h"
#include <sched.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <ucontext.h>

/* A sibling thread sends signals without a pause that the scheduler would notice; the handler allocates and frees while
 * its thread is inside malloc or free. Deliveries are counted in the handler; a second thread frees what handlers
 * handed over. Argument: how many deliveries. */
static atomic_long delivered;
static atomic_int over;
static atomic_uintptr_t handed_over;
static pid_t target_thread;

static void on_signal(int number) {
    (void)number;
    int saved_errno = errno;
    static uint64_t random = 9;
    size_t size = mixed_size(&random);
    void *block = FILLED(size);
    void *other = malloc(1 + size % 100);
    CHECK(other != NULL && other != block);
    RELEASE(block, size);
    free((void *)atomic_exchange(&handed_over, (uintptr_t)other));
    atomic_fetch_add(&delivered, 1);
    errno = saved_errno;
}

static void *free_handed_over(void *unused) {
    (void)unused;
    while (!atomic_load(&over)) {
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
    atomic_store(&over, 1);
    return NULL;
}

static void storm(void) {
    long wanted = atol(arguments[1]);
    struct sigaction action = {.sa_handler = on_signal};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    target_thread = (pid_t)syscall(SYS_gettid);
    /* Only the main thread is to be interrupted. */
    pthread_t sender = started(send, &wanted);
    pthread_t freer = started(free_handed_over, NULL);
    struct churn set;
    churn_start(&set, 4);
    while (!atomic_load(&over)) churn_step(&set);
    churn_end(&set);
    join(sender);
    join(freer);
    CHECK(atomic_load(&delivered) >= wanted);
    free((void *)atomic_load(&handed_over));
}

/* A signal handler that forks, or leaves its namespaces, while its thread is inside malloc or in the middle of a start
 * of the allocator's own thread. The child allocates in the handler. Arguments: fork or unshare, how many times. */
enum { HANG_SECONDS = 30 };

static long calls_wanted;
static int forks;
static pthread_t main_thread;

static void allocate(size_t count) {
    void *block[64];
    for (size_t i = 0; i < count; i++) block[i] = FILLED(16 + i * 100);
    for (size_t i = 0; i < count; i++) RELEASE(block[i], 16 + i * 100);
}

static void on_user_signal(int signal) {
    (void)signal;
    int saved_errno = errno;
    if (forks) {
        pid_t child = forked();
        if (child == 0) {
            alarm(HANG_SECONDS);
            allocate(64);
            _exit(0);
        }
        reap(child);
    } else {
        CHECK(unshare(CLONE_FS) == 0);
    }
    atomic_fetch_add(&delivered, 1);
    errno = saved_errno;
}

static void *keep_sending(void *unused) {
    (void)unused;
    long seen = -1;
    double since = now_seconds();
    while (!atomic_load(&over)) {
        long now = atomic_load(&delivered);
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
        if (now < calls_wanted) CHECK(pthread_kill(main_thread, SIGUSR1) == 0);
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

static void in_handler(void) {
    forks = strcmp(arguments[1], "fork") == 0;
    calls_wanted = atol(arguments[2]);
    main_thread = pthread_self();
    struct sigaction action = {.sa_handler = on_user_signal, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    pthread_t thread[2];
    thread[0] = started(keep_allocating, NULL);
    thread[1] = started(keep_sending, NULL);
    struct churn set;
    churn_start(&set, 3);
    while (atomic_load(&delivered) < calls_wanted) {
        churn_step(&set);
        /* So much freed that it is worth a thread. */
        void *block[10];
        for (size_t i = 0; i < 10; i++) block[i] = MUST(malloc(300000));
        for (size_t i = 0; i < 10; i++) free(block[i]);
    }
    atomic_store(&over, 1);
    join_all(thread, 2);
    churn_end(&set);
}

/* The trap flag raises SIGTRAP after every instruction of malloc, free, calloc and realloc; the handler allocates and
 * frees each time. So every instruction boundary of the fast paths, and of the refills and flushes that happen on the
 * way, is interrupted: 10^6 deliveries. x86-64 only. */
#ifdef __x86_64__
static volatile long traps;
static void *held[64];
static size_t held_size[64];
static uint64_t handler_random = 77;

static void on_trap(int number, siginfo_t *info, void *context) {
    (void)number, (void)info, (void)context;
    int saved_errno = errno;
    long turn = ++traps;
    size_t slot = (size_t)turn % 64;
    if (held[slot] != NULL) {
        RELEASE(held[slot], held_size[slot]);
        held[slot] = NULL;
    } else {
        held_size[slot] = 1 + next_random(&handler_random) % (turn % 16 == 0 ? 20000 : 300);
        held[slot] = FILLED(held_size[slot]);
    }
    errno = saved_errno;
}

#define TRAP_FLAG 0x100ul
static inline void step_on(void) {
    __asm__ volatile("pushfq; orq %0, (%%rsp); popfq" ::"i"(TRAP_FLAG) : "memory", "cc");
}
static inline void step_off(void) {
    __asm__ volatile("pushfq; andq %0, (%%rsp); popfq" ::"i"((int)~TRAP_FLAG) : "memory", "cc");
}

static void step(void) {
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGTRAP, &action, NULL) == 0);
    enum { SLOTS = 512 };
    static void *block[SLOTS];
    static size_t size[SLOTS];
    uint64_t random = 3;
    const long wanted = scaled(1000000, 10000000);
    while (traps < wanted) {
        size_t slot = next_random(&random) % SLOTS;
        uint64_t draw = next_random(&random);
        size_t next = 1 + (draw >> 16) % (draw % 64 == 0 ? 40000 : 400);
        if (block[slot] == NULL) {
            void *fresh;
            step_on();
            fresh = draw % 8 == 1 ? calloc(1, next) : malloc(next);
            step_off();
            block[slot] = MUST(fresh);
            size[slot] = next;
            fill(block[slot], next);
        } else if (draw % 4 == 2) {
            CHECK(holds(block[slot], size[slot]));
            void *moved;
            step_on();
            moved = realloc(block[slot], next);
            step_off();
            block[slot] = MUST(moved);
            size[slot] = next;
            fill(block[slot], next);
        } else {
            CHECK(holds(block[slot], size[slot]));
            step_on();
            free(block[slot]);
            step_off();
            block[slot] = NULL;
        }
    }
    for (size_t i = 0; i < SLOTS; i++)
        if (block[i] != NULL) RELEASE(block[i], size[i]);
    for (size_t i = 0; i < 64; i++)
        if (held[i] != NULL) RELEASE(held[i], held_size[i]);
}
#else
static void step(void) { CHECK(!"single stepping by the trap flag is x86-64's"); }
#endif

CASES(CASE(storm), CASE(in_handler), CASE(step))
