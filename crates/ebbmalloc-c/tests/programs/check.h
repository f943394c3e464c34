/* What every program of the preload suite starts with: checks that name their place, patterns in
 * memory that show a block which was handed out twice or given back too early, and the proof that
 * malloc is the one under test. Included first by every program here; works with glibc and musl. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
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

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            int saved_errno = errno;                                                               \
            char line[512];                                                                        \
            snprintf(line, sizeof line, "%s:%d: failed: %s (errno %d)\n", __FILE__, __LINE__,      \
                     #condition, saved_errno);                                                     \
            say(line);                                                                             \
            _exit(99);                                                                             \
        }                                                                                          \
    } while (0)

#ifdef EBB_STATIC
static inline void require_preload(void) {}
#else
/* EBB_TEST_LIBRARY is the file that must hold `malloc`, with links resolved. */
static inline void require_preload(void) {
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
    CHECK(write(1, line, sizeof line - 1) == (ssize_t)sizeof line - 1);
    return 0;
}

static inline uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Log-uniform from 1 byte to 64 KiB, now and then up to 4 MiB: every kind of block is met. */
static inline size_t mixed_size(uint64_t *state) {
    uint64_t draw = next_random(state);
    unsigned shift = draw % 512 == 0 ? 22 : (unsigned)(draw % 17);
    return 1 + (size_t)((draw >> 20) & (((uint64_t)1 << shift) - 1));
}

/* A block's contents follow from its address and size: an overlap of two blocks shows. Large
 * blocks are marked at their ends and once a page. */
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
        CHECK(holds(set->block[slot], set->size[slot]));
        free(set->block[slot]);
        set->block[slot] = NULL;
        return;
    }
    set->size[slot] = mixed_size(&set->random);
    set->block[slot] = malloc(set->size[slot]);
    CHECK(set->block[slot] != NULL);
    fill(set->block[slot], set->size[slot]);
}

static inline void churn_end(struct churn *set) {
    for (size_t slot = 0; slot < 256; slot++) {
        if (set->block[slot] == NULL) continue;
        CHECK(holds(set->block[slot], set->size[slot]));
        free(set->block[slot]);
        set->block[slot] = NULL;
    }
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
