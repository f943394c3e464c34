/* What settings change, as numbers to compare: prints `name value` lines. Argument: what to look at. */
#include "check.h"
#include <stdbool.h>
#include <stdint.h>

extern int mallctl(const char *, void *, size_t *, void *, size_t) __attribute__((weak));
extern void *_Znwm(size_t) __attribute__((weak));

static size_t figure(const char *name) {
    size_t value = 0, length = sizeof value;
    CHECK(mallctl(name, &value, &length, NULL, 0) == 0);
    return value;
}

static unsigned number(const char *name) {
    unsigned value = 0;
    size_t length = sizeof value;
    CHECK(mallctl(name, &value, &length, NULL, 0) == 0);
    return value;
}

static void refresh(void) {
    uint64_t epoch = 1;
    CHECK(mallctl("epoch", NULL, NULL, &epoch, sizeof epoch) == 0);
}

/* The flag of /proc/self/smaps in the mapping that holds `address`. */
static bool has_flag(const void *address, const char *flag) {
    FILE *smaps = fopen("/proc/self/smaps", "r");
    CHECK(smaps != NULL);
    char line[512];
    bool inside = false, found = false;
    while (fgets(line, sizeof line, smaps) != NULL) {
        unsigned long start, end;
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
            inside = (unsigned long)address >= start && (unsigned long)address < end;
        if (inside && strncmp(line, "VmFlags:", 8) == 0 && strstr(line, flag) != NULL) found = true;
    }
    fclose(smaps);
    return found;
}

static void caches(void) {
    void *small[100], *large[20];
    for (int i = 0; i < 100; i++) small[i] = malloc(48);
    for (int i = 0; i < 20; i++) large[i] = malloc(20000);
    for (int i = 0; i < 100; i++) free(small[i]);
    for (int i = 0; i < 20; i++) free(large[i]);
    refresh();
    printf("cached %zu\n", figure("stats.arenas.4096.tcache_bytes"));
    printf("most %zu\n", figure("thread.tcache.max"));
}

static void oversize(void) {
    void *block = malloc(20 * MIB);
    memset(block, 1, 20 * MIB);
    free(block);
    refresh();
    printf("resident %zu\n", figure("stats.resident"));
}

/* The same in small blocks. */
static void crumbs(void) {
    static void *blocks[20000];
    for (int i = 0; i < 20000; i++) memset(blocks[i] = malloc(1024), 1, 1024);
    for (int i = 0; i < 20000; i++) free(blocks[i]);
    refresh();
    printf("resident %zu\n", figure("stats.resident"));
}

/* Anonymous memory that is resident, as the kernel counts it. */
static size_t anonymous_bytes(void) {
    FILE *status = fopen("/proc/self/status", "r");
    CHECK(status != NULL);
    char line[256];
    size_t kib = 0;
    while (fgets(line, sizeof line, status) != NULL)
        if (sscanf(line, "RssAnon: %zu", &kib) == 1) break;
    fclose(status);
    return kib * 1024;
}

/* Many sizes live, as many freed among them, at rest: what the allocator says of itself, and what the
 * kernel says of the process beyond what it had before. */
static void truth(void) {
    enum { BLOCKS = 60000 };
    static void *block[BLOCKS];
    memset(block, 1, sizeof block);
    refresh();
    anonymous_bytes();
    size_t ours = figure("stats.resident"), kernels = anonymous_bytes();
    for (int i = 0; i < BLOCKS; i++) {
        size_t size = i % 500 == 0 ? 100000 : 64 + (size_t)i * 7 % 3000;
        block[i] = malloc(size);
        memset(block[i], 1, size);
    }
    for (int i = 0; i < BLOCKS; i++)
        if (i % 3 == 0 || i > BLOCKS / 2) free(block[i]);
    sleep_ms(4000);
    refresh();
    printf("ours %zu\n", figure("stats.resident") - ours);
    printf("kernels %zu\n", anonymous_bytes() - kernels);
}

static void retained(void) {
    oversize();
    sleep_ms(3500);
    refresh();
    printf("retained %zu\n", figure("stats.retained"));
}

static void arenas(void) {
    printf("arenas %u\n", number("arenas.narenas"));
    refresh();
    for (unsigned i = 0; i < number("arenas.narenas"); i++) {
        char name[64];
        snprintf(name, sizeof name, "stats.arenas.%u.nthreads", i);
        if (number(name) > 0) printf("own %u\n", i);
    }
}

static void huge(void) {
    void *block = malloc(MIB);
    printf("refused %d\n", has_flag(block, " nh"));
    printf("wanted %d\n", has_flag(block, " hg"));
    uint64_t *counter = NULL; /* lies in metadata */
    size_t length = sizeof counter;
    CHECK(mallctl("thread.allocatedp", &counter, &length, NULL, 0) == 0);
    printf("metadata_refused %d\n", has_flag(counter, " nh"));
    printf("metadata_wanted %d\n", has_flag(counter, " hg"));
}

int main(int count, char **arguments) {
    require_preload();
    CHECK(count == 2);
    free(malloc(1));
    const char *what = arguments[1];
    if (strcmp(what, "caches") == 0) caches();
    if (strcmp(what, "oversize") == 0) oversize();
    if (strcmp(what, "crumbs") == 0) crumbs();
    if (strcmp(what, "retained") == 0) retained();
    if (strcmp(what, "truth") == 0) truth();
    if (strcmp(what, "arenas") == 0) arenas();
    if (strcmp(what, "delay") == 0) printf("delay %zu\n", figure("arena.0.dirty_decay_ms"));
    if (strcmp(what, "huge") == 0) huge();
    if (strcmp(what, "much") == 0)
        for (int i = 0; i < 100; i++) free(malloc(1000));
    if (strcmp(what, "exhaust") == 0) CHECK(malloc((size_t)1 << 62) == NULL);
    if (strcmp(what, "new") == 0) (void)_Znwm((size_t)1 << 62);
    fflush(stdout);
    return passed();
}
