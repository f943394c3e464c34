/* latency: how long single calls of malloc and free take while memory is being returned.
 *
 *   latency wall|cpu CALLS
 *
 * One thread replaces blocks of 16 B to 4 KiB (every thousandth of 64 KiB to 1 MiB) and times
 * each call; another allocates 64 MiB of small objects and frees them, twice a second, so
 * that there is always something to return. `wall` includes waiting, and the scheduler's
 * noise; `cpu` is the thread's own CPU time: preemption is out, spinning for a lock and page
 * faults are in, and the clock itself is a system call. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "random.h"
#include "report.h"
#include "scale/cost.h"

/* Buckets of one 32nd of a power of two: a quantile is exact to 3 %. */
enum { LIVE = 20000, STEPS = 32, BUCKETS = 64 * STEPS };

static uint64_t histogram[BUCKETS];
static uint64_t longest_ns;
static clockid_t clock_used;
static atomic_bool stop;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(clock_used, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static unsigned bucket_of(uint64_t ns)
{
    if (ns < STEPS)
        return (unsigned)ns;
    unsigned power = 63u - (unsigned)__builtin_clzll(ns);
    return (power - 4) * STEPS + (unsigned)(ns >> (power - 5)) - STEPS;
}

static double bucket_ns(unsigned bucket)
{
    if (bucket < STEPS)
        return bucket;
    return (double)((uint64_t)(bucket % STEPS + STEPS) << (bucket / STEPS - 1));
}

static void record(uint64_t ns)
{
    histogram[bucket_of(ns)]++;
    if (ns > longest_ns)
        longest_ns = ns;
}

static double quantile_ns(double share, uint64_t calls)
{
    uint64_t wanted = (uint64_t)(share * (double)calls), seen = 0;
    for (unsigned i = 0; i < BUCKETS; i++)
        if ((seen += histogram[i]) > wanted)
            return bucket_ns(i);
    return (double)longest_ns;
}

static void *storm(void *unused)
{
    enum { OBJECTS = 120000 };
    static char *object[OBJECTS];
    struct random_state random = random_seeded(99);
    (void)unused;
    while (!atomic_load(&stop)) {
        for (int i = 0; i < OBJECTS; i++) {
            size_t size_bytes = random_log_uniform(&random, 64, 2048);
            object[i] = malloc(size_bytes);
            if (object[i])
                memset(object[i], 1, size_bytes);
        }
        for (int i = 0; i < OBJECTS; i++)
            free(object[i]);
        struct timespec half = {0, 500000000};
        nanosleep(&half, NULL);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 3 || (strcmp(argv[1], "wall") != 0 && strcmp(argv[1], "cpu") != 0) || atoll(argv[2]) < 1) {
        fprintf(stderr, "usage: latency wall|cpu CALLS\n");
        return 64;
    }
    clock_used = strcmp(argv[1], "cpu") == 0 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
    uint64_t calls = (uint64_t)atoll(argv[2]), done = 0;
    const char *provider = malloc_provider();
    static char *block[LIVE];
    struct random_state random = random_seeded(1);
    pthread_t other;
    if (pthread_create(&other, NULL, storm, NULL) != 0)
        return 3;
    double from = clock_seconds();
    struct cost before = cost_read();
    while (done < calls) {
        uint32_t slot = random_below(&random, LIVE);
        size_t size_bytes = random_below(&random, 1000) == 0 ? random_log_uniform(&random, 64 << 10, 1 << 20)
                                                             : random_log_uniform(&random, 16, 4096);
        uint64_t t0 = now_ns();
        free(block[slot]);
        uint64_t t1 = now_ns();
        block[slot] = malloc(size_bytes);
        uint64_t t2 = now_ns();
        if (!block[slot])
            return 3;
        block[slot][0] = block[slot][size_bytes - 1] = 1;
        record(t1 - t0);
        record(t2 - t1);
        done += 2;
    }
    struct cost after = cost_read();
    double wall_s = clock_seconds() - from;
    atomic_store(&stop, true);
    pthread_join(other, NULL);
    printf("{\"program\": \"latency\", \"malloc_provider\": \"%s\", \"clock\": \"%s\", \"calls\": %llu, \"wall_s\": %.3f, "
           "\"own_cpu_s\": %.3f, \"p50_ns\": %.0f, \"p99_ns\": %.0f, \"p999_ns\": %.0f, \"p9999_ns\": %.0f, \"p99999_ns\": %.0f, "
           "\"longest_ns\": %llu, \"peak_rss_bytes\": %ld}\n",
           provider, argv[1], (unsigned long long)done, wall_s, after.own_cpu_s - before.own_cpu_s, quantile_ns(0.5, done),
           quantile_ns(0.99, done), quantile_ns(0.999, done), quantile_ns(0.9999, done), quantile_ns(0.99999, done),
           (unsigned long long)longest_ns, peak_rss_bytes());
    return 0;
}
