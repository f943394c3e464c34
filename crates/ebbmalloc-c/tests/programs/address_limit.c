/* RLIMIT_AS or RLIMIT_DATA of 512 MiB, set before the start (by the harness) or by the program
 * itself. Memory must be usable up to near the limit; beyond it malloc fails with ENOMEM, and the
 * program's own mappings and threads keep working. RLIMIT_DATA fails the step that makes reserved
 * memory writable, as overcommit_memory=2 does. Arguments: before or after; as or data; within, or
 * exhausted: the heap fills the limit, is freed, and within 3 s leaves room for others again. */
#include "check.h"
#include <sys/resource.h>

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
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, end_at_once, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

/* What the allocator has reserved beyond a limit that came later, or has filled and got back, it
 * gives up at a tick of its own: a program that goes on allocating can map again within 3 s. */
static void wait_for_room(struct churn *set) {
    double limit = now_seconds() + 3;
    for (;;) {
        void *mapped = mmap(NULL, 16 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (mapped != MAP_FAILED) {
            CHECK(munmap(mapped, 16 * MIB) == 0);
            return;
        }
        CHECK(now_seconds() < limit);
        for (int i = 0; i < 5000; i++) churn_step(set);
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

int main(int count, char **arguments) {
    require_preload();
    CHECK(count == 4);
    int after = strcmp(arguments[1], "after") == 0;
    int resource = strcmp(arguments[2], "as") == 0 ? RLIMIT_AS : RLIMIT_DATA;
    struct churn set;
    churn_start(&set, 3);
    if (after) {
        for (int i = 0; i < 20000; i++) churn_step(&set);
        lower_limit(resource);
        wait_for_room(&set);
    }
    own_mappings_work();
    for (int i = 0; i < 20000; i++) churn_step(&set);

    void *held[200];
    for (size_t i = 0; i < 200; i++) {
        held[i] = malloc(CHUNK);
        CHECK(held[i] != NULL);
        fill(held[i], CHUNK);
    }
    own_mappings_work();
    for (size_t i = 0; i < 200; i++) {
        CHECK(holds(held[i], CHUNK));
        free(held[i]);
    }

    errno = 0;
    CHECK(malloc(600 * MIB) == NULL && errno == ENOMEM);
    for (int i = 0; i < 20000; i++) churn_step(&set);
    own_mappings_work();
    if (strcmp(arguments[3], "within") == 0) {
        churn_end(&set);
        return passed();
    }
    CHECK(allocate_until_refused(CHUNK) >= 256);
    CHECK(allocate_until_refused(4000) >= 256 * MIB / 4096);
    for (int i = 0; i < 20000; i++) churn_step(&set);
    wait_for_room(&set);
    own_mappings_work();
    /* And what was given up serves again. */
    CHECK(allocate_until_refused(CHUNK) >= 256);
    wait_for_room(&set);
    own_mappings_work();
    churn_end(&set);
    return passed();
}
