/* What every program of the preload suite starts with: checks that name their place, patterns in memory that show a
 * block which was handed out twice or returned too early, and the proof that malloc is the one under test. Included
 * first by every program here; works with glibc and musl. */
#pragma once
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <alloca.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

/* dprintf would allocate in some libraries; a failing allocator must still be reported. */
static inline void say(const char *text) {
    ssize_t ignored = write(2, text, strlen(text));
    (void)ignored;
}

/* Ends the program with a line that says what failed. */
static inline void failed(const char *file, int line, const char *what) {
    int saved_errno = errno;
    char text[512];
    snprintf(text, sizeof text, "%s:%d: failed: %s (errno %d)\n", file, line, what, saved_errno);
    say(text);
    _exit(99);
}

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) failed(__FILE__, __LINE__, #condition);                                                      \
    } while (0)

/* The call gives no block and leaves this errno. */
#define REFUSED(call, error)                                                                                           \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        if ((call) != NULL || errno != (error)) failed(__FILE__, __LINE__, #call);                                     \
    } while (0)

/* The block, which must be there. */
#define MUST(block)                                                                                                    \
    ({                                                                                                                 \
        void *got_ = (block);                                                                                          \
        if (got_ == NULL) failed(__FILE__, __LINE__, #block);                                                          \
        got_;                                                                                                          \
    })

/* A block of `size` bytes, with its pattern. */
#define FILLED(size)                                                                                                   \
    ({                                                                                                                 \
        size_t size_ = (size);                                                                                         \
        void *new_ = malloc(size_);                                                                                    \
        if (new_ == NULL) failed(__FILE__, __LINE__, "malloc(" #size ")");                                             \
        fill(new_, size_);                                                                                             \
        new_;                                                                                                          \
    })

/* Frees a block that must still have its pattern. */
#define RELEASE(block, size)                                                                                           \
    do {                                                                                                               \
        void *old_ = (block);                                                                                          \
        if (!holds(old_, size)) failed(__FILE__, __LINE__, "holds(" #block ", " #size ")");                            \
        free(old_);                                                                                                    \
    } while (0)

#ifdef EBB_STATIC
static inline void require_preload(void) {}
#else
/* EBB_TEST_LIBRARY is the file that must hold `malloc`, with links resolved. EBB_TEST_NOT_IN_CHARGE: some other malloc
 * is meant to be in charge. */
static inline void require_preload(void) {
    if (getenv("EBB_TEST_NOT_IN_CHARGE") != NULL) return;
    const char *expected = getenv("EBB_TEST_LIBRARY");
    CHECK(expected != NULL);
    Dl_info info;
    void *address = dlsym(RTLD_DEFAULT, "malloc");
    CHECK(address != NULL && dladdr(address, &info) != 0);
    char resolved[PATH_MAX];
    CHECK(realpath(info.dli_fname, resolved) != NULL);
    if (strcmp(resolved, expected) != 0) {
        say("malloc comes from ");
        say(resolved);
        say(", not from the library under test\n");
        _exit(98);
    }
}
#endif

/* The program's own verdict: the harness wants this line as well as status 0. */
static inline int passed(void) {
    static const char line[] = "ok\n";
    fflush(stdout);
    CHECK(write(1, line, sizeof line - 1) == (ssize_t)sizeof line - 1);
    return 0;
}

static inline uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Log-uniform from 1 byte to 64 KiB, now and then up to 4 MiB: every kind of block occurs. */
static inline size_t mixed_size(uint64_t *state) {
    uint64_t draw = next_random(state);
    unsigned shift = draw % 512 == 0 ? 22 : (unsigned)(draw % 17);
    return 1 + (size_t)((draw >> 20) & (((uint64_t)1 << shift) - 1));
}

/* A block's contents follow from its address and size: an overlap of two blocks shows. Large blocks are marked at their
 * ends and once a page. */
static inline unsigned char pattern_at(const unsigned char *block, size_t size, size_t offset) {
    return (unsigned char)(((uintptr_t)block >> 4) * 31 + size * 7 + offset * 13 + 1);
}

static inline void fill(void *pointer, size_t size) {
    unsigned char *block = (unsigned char *)pointer;
    size_t head = size < 512 ? size : 512;
    for (size_t i = 0; i < head; i++) block[i] = pattern_at(block, size, i);
    for (size_t i = head; i < size; i += 4096) block[i] = pattern_at(block, size, i);
    if (size > 0) block[size - 1] = pattern_at(block, size, size - 1);
}

static inline int holds(const void *pointer, size_t size) {
    const unsigned char *block = (const unsigned char *)pointer;
    size_t head = size < 512 ? size : 512;
    for (size_t i = 0; i < head; i++)
        if (block[i] != pattern_at(block, size, i)) return 0;
    for (size_t i = head; i < size; i += 4096)
        if (block[i] != pattern_at(block, size, i)) return 0;
    return size == 0 || block[size - 1] == pattern_at(block, size, size - 1);
}

/* A working set of blocks that come and go; one per thread. */
struct churn {
    uint64_t random;
    void *block[256];
    size_t size[256];
};

static inline void churn_start(struct churn *set, uint64_t seed) {
    memset(set, 0, sizeof *set);
    set->random = seed * 0x9E3779B97F4A7C15u + 1;
}

static inline void churn_step(struct churn *set) {
    size_t slot = next_random(&set->random) % 256;
    if (set->block[slot] != NULL) {
        RELEASE(set->block[slot], set->size[slot]);
        set->block[slot] = NULL;
        return;
    }
    set->size[slot] = mixed_size(&set->random);
    set->block[slot] = FILLED(set->size[slot]);
}

static inline void churn_steps(struct churn *set, long steps) {
    for (long i = 0; i < steps; i++) churn_step(set);
}

static inline void churn_end(struct churn *set) {
    for (size_t slot = 0; slot < 256; slot++) {
        if (set->block[slot] == NULL) continue;
        RELEASE(set->block[slot], set->size[slot]);
        set->block[slot] = NULL;
    }
}

/* A working set from its beginning to its end. */
static inline void churn(uint64_t seed, long steps) {
    struct churn set;
    churn_start(&set, seed);
    churn_steps(&set, steps);
    churn_end(&set);
}

/* Long runs are asked for by EBB_LONG=1 (`make test-long`). */
static inline long scaled(long normal, long longer) {
    const char *wanted = getenv("EBB_LONG");
    return wanted != NULL && wanted[0] == '1' ? longer : normal;
}

static inline double now_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static inline void sleep_ms(long milliseconds) {
    struct timespec rest = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    while (nanosleep(&rest, &rest) != 0 && errno == EINTR) {
    }
}

/* A small file of /proc, without allocating: one read. */
static inline void read_text(const char *path, char *text, size_t size) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0);
    ssize_t length = read(file, text, size - 1);
    close(file);
    CHECK(length > 0);
    text[length] = 0;
}

static inline size_t resident_bytes(void) {
    char text[128];
    read_text("/proc/self/statm", text, sizeof text);
    char *end;
    strtoul(text, &end, 10);
    return strtoul(end, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE);
}

/* A child must have ended by itself with status 0. */
static inline void reap(pid_t child) {
    int status;
    pid_t ended;
    do ended = waitpid(child, &status, __WALL);
    while (ended < 0 && errno == EINTR);
    CHECK(ended == child);
    if (WIFSIGNALED(status)) {
        char line[64];
        snprintf(line, sizeof line, "child killed by signal %d\n", WTERMSIG(status));
        say(line);
    }
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Forks; the child is the caller's affair. */
static inline pid_t forked(void) {
    pid_t child = fork();
    CHECK(child >= 0);
    return child;
}

/* A fork of which no handler hears. */
static inline pid_t bare_fork(int by_libc) {
    pid_t child;
#if __GLIBC__ * 100 + __GLIBC_MINOR__ >= 234
    if (by_libc) child = _Fork();
    else
#endif
        child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    (void)by_libc;
    CHECK(child >= 0);
    return child;
}

static inline pthread_t started(void *(*run)(void *), void *argument) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, run, argument) == 0);
    return thread;
}

static inline void join(pthread_t thread) { CHECK(pthread_join(thread, NULL) == 0); }

/* Threads that run `run` with 1, 2, 3... */
static inline void start_all(pthread_t *threads, size_t count, void *(*run)(void *)) {
    for (size_t i = 0; i < count; i++) threads[i] = started(run, (void *)(i + 1));
}

static inline void join_all(pthread_t *threads, size_t count) {
    for (size_t i = 0; i < count; i++) join(threads[i]);
}

static inline void run_threads(size_t count, void *(*run)(void *)) {
    pthread_t *threads = (pthread_t *)alloca(count * sizeof *threads);
    start_all(threads, count, run);
    join_all(threads, count);
}

/* Under the preload in musl, which declares none itself, as well as in an archive. */
static inline void trim(void) {
#ifdef EBB_STATIC
    extern int malloc_trim(size_t);
    malloc_trim(0);
#else
    int (*malloc_trim_here)(size_t) = (int (*)(size_t))dlsym(RTLD_DEFAULT, "malloc_trim");
    CHECK(malloc_trim_here != NULL);
    malloc_trim_here(0);
#endif
}

/* A program of several cases: its first argument names one; the rest is for the case. */
struct test_case {
    const char *name;
    void (*run)(void);
};
#define CASE(function) {#function, function}

/* From the name of the case on. */
static char **arguments;
static int argument_count;

static inline int run_case(const struct test_case *cases, size_t count, int all, char **given) {
    arguments = given + 1;
    argument_count = all - 1;
    CHECK(argument_count >= 1);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(cases[i].name, arguments[0]) != 0) continue;
        require_preload();
        cases[i].run();
        return passed();
    }
    CHECK(!"there is such a case");
    return 1;
}

#define CASES(...)                                                                                                     \
    int main(int all, char **given) {                                                                                  \
        static const struct test_case cases[] = {__VA_ARGS__};                                                         \
        return run_case(cases, sizeof cases / sizeof *cases, all, given);                                              \
    }
