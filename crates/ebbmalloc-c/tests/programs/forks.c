/* Every way to a new process, and what the child does with the heap that it got. */
#include "check.h"
#include "blocks.h"
#include <sched.h>
#include <spawn.h>
#include <stdatomic.h>

/* A process with four busy threads forks again and again; each child checks its parent's blocks, goes on allocating,
 * every tenth starts a thread, every fiftieth forks itself; the parent's threads never stop. Argument: how many forks.
 * Builds for glibc and musl, shared and static. */
static atomic_int stop;

static void *keep_allocating(void *seed) {
    struct churn set;
    churn_start(&set, (uintptr_t)seed);
    while (!atomic_load(&stop)) {
        churn_steps(&set, 200);
        usleep(300);
    }
    churn_end(&set);
    return NULL;
}

static void *allocate_once(void *seed) {
    churn((uintptr_t)seed, 300);
    return NULL;
}

static void run_child(struct churn *set, long turn) {
    alarm(60);
    churn_steps(set, 200);
    if (turn % 10 == 0) {
        pthread_t thread = started(allocate_once, (void *)(turn + 1));
        churn_steps(set, 100);
        join(thread);
    }
    if (turn % 50 == 0) {
        pid_t grandchild = forked();
        if (grandchild == 0) {
            churn_end(set);
            _exit(0);
        }
        churn_steps(set, 100);
        reap(grandchild);
    }
    churn_end(set);
    _exit(0);
}

static void busy(void) {
    long forks = atol(arguments[1]);
    pthread_t thread[4];
    start_all(thread, 4, keep_allocating);
    struct churn set;
    churn_start(&set, 99);
    for (long turn = 0; turn < forks; turn++) {
        churn_steps(&set, 50);
        pid_t child = forked();
        if (child == 0) run_child(&set, turn);
        churn_steps(&set, 50);
        reap(child);
    }
    atomic_store(&stop, 1);
    join_all(thread, 4);
    churn_end(&set);
}

/* Children of raw clone and _Fork, which run no fork handlers, copied while the allocator's own thread is at work,
 * unknown to the program, or its own threads are. Each child goes on with what it got. Arguments: how many
 * children; how many threads besides the one that makes them. */
enum { TORN_BLOCKS = 8000 };

static void *torn_block[TORN_BLOCKS];

static size_t size_of(size_t i) { return i % 500 == 0 ? 200000 : 16 + i * 37 % 3000; }

static void take_blocks(size_t from, size_t step) {
    for (size_t i = from; i < TORN_BLOCKS; i += step) torn_block[i] = FILLED(size_of(i));
}

static void release_blocks(size_t from, size_t step) {
    for (size_t i = from; i < TORN_BLOCKS; i += step) RELEASE(torn_block[i], size_of(i));
}

/* Blocks freed by the parent are allocated again, its live blocks are freed, in turns. */
static void go_on(void) {
    alarm(60);
    for (size_t from = 0; from < 4; from++)
        if (from != 1) take_blocks(from, 4);
    for (size_t i = 1; i < TORN_BLOCKS; i += 8) {
        CHECK(holds(torn_block[i], size_of(i)));
        torn_block[i] = MUST(realloc(torn_block[i], 2 * size_of(i)));
        fill(torn_block[i], size_of(i));
    }
    for (size_t from = 0; from < 4; from++) release_blocks(from, 4);
    take_blocks(0, 1);
    release_blocks(0, 1);
    _exit(0);
}

static void *keep_churning(void *seed) {
    struct churn set;
    churn_start(&set, (uintptr_t)seed);
    for (;;) churn_step(&set);
    return NULL;
}

static void torn(void) {
    long children = atol(arguments[1]);
    for (long seed = 1; seed <= atol(arguments[2]); seed++) started(keep_churning, (void *)seed);
    uint64_t random = 88172645463325252u;
    take_blocks(0, 1);
    for (long turn = 0; turn < children; turn++) {
        /* One in four stays. */
        for (size_t from = 0; from < 4; from++)
            if (from != 1) release_blocks(from, 4);
        double until = now_seconds() + (double)(next_random(&random) % 12000) / 1e6;
        while (now_seconds() < until) {
        }
        pid_t child = bare_fork(turn % 2 == 0);
        if (child == 0) go_on();
        for (size_t from = 0; from < 4; from++)
            if (from != 1) take_blocks(from, 4);
        reap(child);
    }
    release_blocks(0, 1);
}

/* A forked child gives its own bursts back: 90 % within 30 s, by its own purger, also where no fork handler ran. The
 * parent has purged before. Arguments: fork or clone; MiB that an emulator may take in addition (none). */
enum { BURST_BLOCKS = 64 << 10 };

static void *burst_block[BURST_BLOCKS];
static size_t base; /* resident before the first burst */
static size_t beside;

static void burst_returns(void) {
    take(burst_block, BURST_BLOCKS, 1024, 1);
    size_t peak = resident_bytes();
    CHECK(peak > base + BURST_BLOCKS * (size_t)900);
    give_back(burst_block, BURST_BLOCKS);
    double limit = now_seconds() + 30;
    while (resident_bytes() > base + (peak - base) / 10 + beside) {
        CHECK(now_seconds() < limit);
        sleep_ms(50);
    }
}

static void purge(void) {
    if (argument_count == 3) beside = (size_t)atol(arguments[2]) * MIB;
    memset(burst_block, 1, sizeof burst_block);
    base = resident_bytes();
    burst_returns();
    for (int turn = 0; turn < 3; turn++) {
        pid_t child = strcmp(arguments[1], "clone") == 0 ? bare_fork(0) : forked();
        if (child == 0) {
            burst_returns();
            _exit(0);
        }
        if (turn == 1) burst_returns();
        reap(child);
    }
    burst_returns();
}

/* Every other way to a new process: raw clone and _Fork, which run no fork handlers, vfork, posix_spawn and exec over a
 * running allocator. The raw children go on allocating, from a parent whose allocator has already purged, and with
 * sibling threads asleep. Arguments: the form, how many times. */
extern char **environ;

static pthread_barrier_t ready;

static void *allocate_and_sleep(void *seed) {
    struct churn set;
    churn_start(&set, (uintptr_t)seed);
    churn_steps(&set, 3000);
    pthread_barrier_wait(&ready);
    for (;;) pause();
    return NULL;
}

static void mixed_burst(void) {
    enum { BLOCKS = 20000 };
    static void *block[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) block[i] = FILLED(1000 + i % 1000);
    for (size_t i = 0; i < BLOCKS; i++) RELEASE(block[i], 1000 + i % 1000);
}

static void allocate_in_child(struct churn *set) {
    alarm(60);
    churn_steps(set, 500);
    mixed_burst();
    churn_end(set);
    _exit(0);
}

/* The executed program: its case is `executed`. */
static void executed(void) { churn(7, 2000); }

static char *const again[] = {(char *)"forks", (char *)"executed", NULL};

static void exec_self(void) {
    execve("/proc/self/exe", again, environ);
    _exit(97);
}

static void run_form(const char *form, struct churn *set) {
    pid_t child;
    if (strcmp(form, "clone") == 0 || strcmp(form, "_Fork") == 0) {
        child = bare_fork(strcmp(form, "_Fork") == 0);
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
        CHECK(posix_spawn(&child, "/proc/self/exe", NULL, NULL, again, environ) == 0);
    }
    CHECK(child > 0);
    churn_steps(set, 50);
    reap(child);
}

static void forms(void) {
    struct churn set;
    churn_start(&set, 7);
    churn_steps(&set, 2000);
    long turns = atol(arguments[2]);
    CHECK(pthread_barrier_init(&ready, NULL, 3) == 0);
    for (long turn = 0; turn < turns; turn++) {
        /* The first half is single-threaded but for what the allocator itself has started. */
        if (turn == turns / 2) {
            started(allocate_and_sleep, (void *)1);
            started(allocate_and_sleep, (void *)2);
            pthread_barrier_wait(&ready);
            sleep_ms(20);
        }
        if (turn % 10 == 0) mixed_burst();
        if (turn % 10 == 5) sleep_ms(120);
        run_form(arguments[1], &set);
    }
    churn_end(&set);
}

CASES(CASE(busy), CASE(torn), CASE(purge), CASE(forms), CASE(executed))
