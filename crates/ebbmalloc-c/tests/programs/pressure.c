/* Memory that runs out: a limit just above what lives, forks of a large parent, ten thousand threads, no mapping left; and a
 * soak of all of it. */
#include "check.h"
#include "blocks.h"
#include <sys/resource.h>

/* argv: MiB that live. The limit of the cgroup is a tenth more: what comes and goes must not stay. */
static void tight(void) {
    size_t count = (size_t)atol(arguments[1]) * MIB / 4000;
    void **live = pointers(count);
    take(live, count, 3900, 100);
    static const size_t size[] = {40, 700, 9000, 100000, 1500000};
    for (int round = 0; round < 60; round++) {
        size_t one = size[round % 5], some = 5 * MIB / one;
        void **burst = pointers(some);
        take(burst, some, one, 50);
        give_back(burst, some);
        munmap(burst, some * sizeof *burst);
    }
    for (size_t i = 0; i < count; i++) CHECK(*(char *)live[i] == 1);
}

/* argv: MiB of the parent, children. Each child frees and allocates a little of what it shares. */
static void fork_storm(void) {
    size_t count = (size_t)atol(arguments[1]) * MIB / 4096;
    void **block = pointers(count);
    take(block, count, 4000, 90);
    int children = atoi(arguments[2]);
    for (int i = 0; i < children; i += 10) {
        pid_t child[10];
        for (int j = 0; j < 10; j++) {
            child[j] = forked();
            if (child[j] == 0) {
                give_back(block, 200);
                churn((uint64_t)(i + j), 5000);
                _exit(0);
            }
        }
        churn((uint64_t)i, 2000);
        for (int j = 0; j < 10; j++) reap(child[j]);
    }
    for (size_t i = 0; i < count; i++) CHECK(*(char *)block[i] == 1);
}

static pthread_barrier_t all_there;
static void *small_thread(void *number) {
    void *block[20];
    for (size_t i = 0; i < 20; i++) block[i] = FILLED(16 + ((size_t)number + i) % 500);
    pthread_barrier_wait(&all_there);
    for (size_t i = 0; i < 20; i++) RELEASE(block[i], 16 + ((size_t)number + i) % 500);
    return NULL;
}

/* argv: threads at once. */
static void many_threads(void) {
    size_t count = (size_t)atol(arguments[1]);
    pthread_t *thread = MUST(malloc(count * sizeof *thread));
    pthread_attr_t small;
    CHECK(!pthread_attr_init(&small) && !pthread_attr_setstacksize(&small, 64 << 10));
    CHECK(!pthread_barrier_init(&all_there, NULL, (unsigned)count + 1));
    for (size_t i = 0; i < count; i++) CHECK(!pthread_create(&thread[i], &small, small_thread, (void *)i));
    pthread_barrier_wait(&all_there);
    join_all(thread, count);
    free(thread);
}

/* Every mapping that the kernel allows is taken: malloc serves or refuses, and frees everything. */
static void no_mapping_left(void) {
    size_t page = 4096, most = 1 << 18;
    char *all = mmap(NULL, 2 * most * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(all != MAP_FAILED);
    void *kept[100];
    for (size_t i = 0; i < 100; i++) kept[i] = FILLED(i * 3000 + 1);
    size_t made = 0;
    while (made < most && mprotect(all + 2 * made * page, page, PROT_NONE) == 0) made++;
    CHECK(errno == ENOMEM);
    for (int round = 0; round < 200; round++) {
        void *block[200];
        for (size_t i = 0; i < 200; i++) {
            size_t size = (i * 977 + (size_t)round * 31) % (3 * MIB);
            block[i] = malloc(size);
            if (block[i] == NULL) CHECK(errno == ENOMEM);
            else fill(block[i], size);
        }
        for (size_t i = 0; i < 200; i++)
            if (block[i] != NULL) RELEASE(block[i], (i * 977 + (size_t)round * 31) % (3 * MIB));
        if (round % 50 == 0) trim();
    }
    for (size_t i = 0; i < 100; i++) RELEASE(kept[i], i * 3000 + 1);
    CHECK(munmap(all, 2 * most * page) == 0);
    churn(5, 20000);
}

static volatile int ends;
static void allocate_in_handler(int number) {
    (void)number;
    int saved = errno;
    free(malloc(100));
    errno = saved;
}

/* Workloads 0 to 5 of a soak: mixed, growing by realloc, one size, large, zeroed and aligned. */
static void *workload(void *number) {
    struct churn set;
    churn_start(&set, (uint64_t)(uintptr_t)number + (uint64_t)now_seconds());
    while (!ends) {
        size_t size = mixed_size(&set.random);
        switch ((uintptr_t)number % 6) {
        case 1: {
            char *block = NULL;
            for (size_t i = 1; i < 300000; i = i * 3 + 1) block = MUST(realloc(block, i)), block[i - 1] = 1;
            free(block);
            break;
        }
        case 2:
            for (int i = 0; i < 1000; i++) RELEASE(FILLED(48), 48);
            break;
        case 3: {
            void *large = malloc(size % (8 * MIB) + 70000);
            free(large);
            break;
        }
        case 4: {
            unsigned char *zeros = MUST(calloc(1, size));
            CHECK(zeros[0] == 0 && zeros[size - 1] == 0);
            memset(zeros, 0xFF, size);
            free(zeros);
            break;
        }
        case 5: {
            void *wide = MUST(aligned_alloc(4096, size));
            CHECK(((uintptr_t)wide & 4095) == 0);
            free(wide);
            break;
        }
        }
        churn_steps(&set, 500);
    }
    churn_end(&set);
    return NULL;
}

/* argv: seconds. Rounds of ten seconds: six threads, forks, signals, a limit that moves; then a rest in which all goes. */
static void soak(void) {
    double end = now_seconds() + atof(arguments[1]);
    struct sigaction action = {.sa_handler = allocate_in_handler, .sa_flags = SA_RESTART};
    CHECK(!sigaction(SIGALRM, &action, NULL));
    size_t most = 0, rounds = 0;
    while (now_seconds() < end) {
        double until = now_seconds() + (end - now_seconds() < 10 ? end - now_seconds() : 10);
        pthread_t thread[6];
        ends = 0;
        start_all(thread, 6, workload);
        while (now_seconds() < until) {
            ualarm(5000, 5000);
            pid_t child = forked();
            if (child == 0) {
                churn(rounds, 3000);
                _exit(0);
            }
            reap(child);
            ualarm(0, 0);
            sleep_ms(20);
        }
        ends = 1;
        join_all(thread, 6);
        /* A kernel that refuses: only now, since the workloads want their blocks. */
        const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY}, little = {64 * MIB, RLIM_INFINITY};
        CHECK(!setrlimit(RLIMIT_DATA, &little));
        for (size_t size = 1000; size < 512 * MIB; size *= 2) free(malloc(size));
        CHECK(!setrlimit(RLIMIT_DATA, &none));
        trim();
        size_t resident = resident_bytes();
        if (++rounds == 1) most = resident + 16 * MIB;
        CHECK(resident < most);
    }
    printf("%zu rounds, %zu MiB resident at rest\n", rounds, resident_bytes() / MIB);
}

CASES(CASE(tight), CASE(fork_storm), CASE(many_threads), CASE(no_mapping_left), CASE(soak))
