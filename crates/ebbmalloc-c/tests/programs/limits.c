/* Limits of the address space and of data, locked memory, and huge pages that the program asks for. */
#include "check.h"
#include <sys/resource.h>

/* RLIMIT_AS or RLIMIT_DATA of 512 MiB, set before the start (by the harness) or by the program itself. Memory must be
 * usable up to near the limit; beyond it malloc fails with ENOMEM, and the program's own mappings and threads keep
 * working. RLIMIT_DATA fails the step that makes reserved memory writable, as overcommit_memory=2 does. Arguments:
 * before or after; as or data; within, or exhausted: the heap fills the limit, is freed, and within 3 s leaves room for
 * others again. */
#define CHUNK (1 * MIB)

static void *end_at_once(void *unused) {
    free(malloc(100));
    return unused;
}

static void own_mappings_work(void) {
    void *mapped = mmap(NULL, 16 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mapped != MAP_FAILED);
    memset(mapped, 1, 16 * MIB);
    CHECK(munmap(mapped, 16 * MIB) == 0);
    join(started(end_at_once, NULL));
}

/* What the allocator has reserved beyond a limit that came later, or has filled and got back, it gives up at a tick of
 * its own: a program that goes on allocating can map again within 3 s. */
static void wait_for_room(struct churn *set) {
    double limit = now_seconds() + 3;
    for (;;) {
        void *mapped = mmap(NULL, 16 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (mapped != MAP_FAILED) {
            CHECK(munmap(mapped, 16 * MIB) == 0);
            return;
        }
        CHECK(now_seconds() < limit);
        churn_steps(set, 5000);
        sleep_ms(20);
    }
}

static void lower_limit(int resource) {
    struct rlimit limit = {512 * MIB, 512 * MIB};
    CHECK(setrlimit(resource, &limit) == 0);
}

/* How many chunks malloc gives before it fails; that it fails rightly; all freed again. */
static size_t allocate_until_refused(size_t chunk) {
    enum { MOST = 1 << 18 };
    static unsigned char *block[MOST];
    size_t got = 0;
    for (; got < MOST; got++) {
        errno = 0;
        block[got] = malloc(chunk);
        if (block[got] == NULL) break;
        block[got][0] = (unsigned char)got;
        block[got][chunk - 1] = (unsigned char)(got >> 8);
    }
    CHECK(got < MOST);
    CHECK(errno == ENOMEM);
    for (size_t i = 0; i < got; i++) {
        CHECK(block[i][0] == (unsigned char)i && block[i][chunk - 1] == (unsigned char)(i >> 8));
        free(block[i]);
    }
    return got;
}

static void limited(void) {
    int after = strcmp(arguments[1], "after") == 0;
    int resource = strcmp(arguments[2], "as") == 0 ? RLIMIT_AS : RLIMIT_DATA;
    struct churn set;
    churn_start(&set, 3);
    if (after) {
        churn_steps(&set, 20000);
        lower_limit(resource);
        wait_for_room(&set);
    }
    own_mappings_work();
    churn_steps(&set, 20000);

    void *held[200];
    for (size_t i = 0; i < 200; i++) held[i] = FILLED(CHUNK);
    own_mappings_work();
    for (size_t i = 0; i < 200; i++) RELEASE(held[i], CHUNK);

    REFUSED(malloc(600 * MIB), ENOMEM);
    churn_steps(&set, 20000);
    own_mappings_work();
    if (strcmp(arguments[3], "within") == 0) {
        churn_end(&set);
        return;
    }
    CHECK(allocate_until_refused(CHUNK) >= 256);
    CHECK(allocate_until_refused(4000) >= 256 * MIB / 4096);
    churn_steps(&set, 20000);
    wait_for_room(&set);
    own_mappings_work();
    /* And what was given up serves again. */
    CHECK(allocate_until_refused(CHUNK) >= 256);
    wait_for_room(&set);
    own_mappings_work();
    churn_end(&set);
}

/* mlockall: memory is locked, so it cannot be returned, but nothing may break and nothing may be populated that was
 * only reserved. Argument: future (MCL_CURRENT | MCL_FUTURE), onfault, or late (locked after a burst was freed). */
#ifndef MCL_ONFAULT
#define MCL_ONFAULT 4
#endif

static void locked(void) {
    int flags = MCL_CURRENT | MCL_FUTURE;
    if (strcmp(arguments[1], "onfault") == 0) flags |= MCL_ONFAULT;
    int late = strcmp(arguments[1], "late") == 0;
    /* Needs CAP_IPC_LOCK or `ulimit -l` of 512 MiB. */
    if (!late) CHECK(mlockall(flags) == 0);
    enum { BLOCKS = 32 << 10 };
    static void *block[BLOCKS];
    for (int round = 0; round < 4; round++) {
        for (size_t i = 0; i < BLOCKS; i++) block[i] = FILLED(2048);
        CHECK(resident_bytes() < 512 * MIB);
        for (size_t i = 0; i < BLOCKS; i++) RELEASE(block[i], 2048);
        if (late && round == 1) CHECK(mlockall(flags) == 0);
        free(MUST(realloc(FILLED(80 * MIB), 120 * MIB)));
        sleep_ms(600);
    }
    unsigned char *zeroed = MUST(calloc(64, MIB));
    for (size_t i = 0; i < 64 * MIB; i += 512) CHECK(zeroed[i] == 0);
    free(zeroed);
    CHECK(resident_bytes() < 512 * MIB);
    CHECK(munlockall() == 0);
    churn(5, 30000);
}

/* Huge pages that the program asks for on a block: there while the block lives, not after it. Argument: free, shrink,
 * move or raw, which asks without the allocator's knowledge and must leave the mark. */
#define HUGE_BLOCK (8 * MIB)

/* Bytes of [start, end) in mappings that huge pages were asked for (hg in smaps). */
static size_t asked_bytes(const char *start, const char *end) {
    FILE *file = fopen("/proc/self/smaps", "r");
    CHECK(file != NULL);
    char line[1024];
    uintptr_t from = 0, to = 0;
    size_t bytes = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        unsigned long a, b;
        if (sscanf(line, "%lx-%lx ", &a, &b) == 2) {
            from = a < (uintptr_t)start ? (uintptr_t)start : a;
            to = b > (uintptr_t)end ? (uintptr_t)end : b;
        } else if (strncmp(line, "VmFlags:", 8) == 0 && strstr(line, " hg") != NULL && from < to) {
            bytes += to - from;
        }
    }
    CHECK(fclose(file) == 0);
    return bytes;
}

static void huge_pages(void) {
    const char *how = arguments[1];
    /* A neighbour, so that the block cannot grow where it is. */
    char *block = malloc(HUGE_BLOCK), *neighbour = malloc(HUGE_BLOCK);
    CHECK(block != NULL && neighbour != NULL);
    char *end = block + HUGE_BLOCK;
    int raw = strcmp(how, "raw") == 0;
    int refused =
        raw ? (int)syscall(SYS_madvise, block, HUGE_BLOCK, MADV_HUGEPAGE) : madvise(block, HUGE_BLOCK, MADV_HUGEPAGE);
    if (refused != 0 && errno == EINVAL) {
        say("this kernel has no huge pages\n");
        return;
    }
    CHECK(refused == 0);
    errno = 0;
    CHECK(raw || (madvise(block + 1, HUGE_BLOCK, MADV_HUGEPAGE) == -1 && errno == EINVAL));
    CHECK(asked_bytes(block, end) == HUGE_BLOCK);
    memset(block, 1, HUGE_BLOCK);
    if (raw) {
        free(block);
        CHECK(asked_bytes(block, end) == HUGE_BLOCK);
        return;
    }
    if (strcmp(how, "free") == 0) {
        free(block);
        CHECK(asked_bytes(block, end) == 0);
    } else if (strcmp(how, "shrink") == 0) {
        char *kept = realloc(block, 3 * MIB);
        CHECK(kept == block);
        CHECK(asked_bytes(block, block + 3 * MIB) == 3 * MIB);
        CHECK(asked_bytes(block + 3 * MIB, end) == 0);
        free(kept);
        CHECK(asked_bytes(block, end) == 0);
    } else {
        CHECK(strcmp(how, "move") == 0);
        char *moved = realloc(block, 4 * HUGE_BLOCK);
        CHECK(moved != NULL && moved != block && moved[HUGE_BLOCK - 1] == 1);
        CHECK(asked_bytes(block, end) == 0);
        free(moved);
        CHECK(asked_bytes(moved, moved + 4 * HUGE_BLOCK) == 0);
    }
    free(neighbour);
}

CASES(CASE(limited), CASE(locked), CASE(huge_pages))
