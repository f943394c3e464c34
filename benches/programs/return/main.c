/* return: how far resident memory comes back to the live heap after a burst.
 *
 * Worker threads are started and wait; resident memory is read (the base); they run
 * the pattern; then memory is read every quarter of a second. Printed as one JSON
 * object, whose figure is
 *
 *   above_live = rss - base.rss - own - live
 *
 * with rss and base.rss from smaps_rollup, own the resident bytes of the ledgers
 * (the benchmark's own record) and live the bytes that the survivors requested.
 * Rounding, metadata and caches of the allocator all count against it. The next field
 * stands bound_above_live: the pages that hold a byte of a survivor, less live.
 *
 * allocator_cpu_s is the CPU time that no worker and no observer spent: that of the
 * threads the allocator started. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "report.h"
#include "return/return.h"

struct sample {
    double at_s;
    struct memory_reading memory;
};

static struct plan plan;
static struct options options = {.rest_s = 6.0, .every_s = 0.25};
static pthread_barrier_t settled, begin, burst_over, end;
static atomic_bool stop_busy;
static struct sample samples[SAMPLES_MOST];

/* All workers together wake a few thousand times a second, however many they are. */
static struct timespec pause_between(long workers_ms)
{
    long pause_ns = workers_ms * 1000000L * (1 + plan.threads / 8);
    return (struct timespec){pause_ns / 1000000000L, pause_ns % 1000000000L};
}

/* Blocks of a small request in, then out. */
static void serve_once(struct random_state *sizes)
{
    void *block[32];
    for (int i = 0; i < 32; i++) {
        size_t size_bytes = 16 + random_below(sizes, 1009);
        block[i] = malloc(size_bytes);
        if (block[i])
            memset(block[i], 1, size_bytes);
    }
    for (int i = 0; i < 32; i++)
        free(block[i]);
}

/* A thread that serves on: small blocks, few at a time. */
static void be_busy(void)
{
    struct random_state sizes = random_seeded(7);
    struct timespec pause = pause_between(2);
    while (!atomic_load_explicit(&stop_busy, memory_order_relaxed)) {
        serve_once(&sizes);
        nanosleep(&pause, NULL);
    }
}

/* A thread that serves on has served before: what that takes is not the burst's. */
static void serve_before(void)
{
    struct random_state sizes = random_seeded(8);
    for (int turn = 0; turn < 100; turn++)
        serve_once(&sizes);
}

/* A thread that works on without a request to the allocator, a fifth of the time. */
static void compute(void)
{
    struct timespec pause = pause_between(4);
    volatile uint64_t sum = 0;
    while (!atomic_load_explicit(&stop_busy, memory_order_relaxed)) {
        for (int i = 0; i < 1000000; i++)
            sum += (uint64_t)i;
        nanosleep(&pause, NULL);
    }
}

/* Stack pages that the burst will need are resident before the base is read. */
static __attribute__((noinline)) void touch_stack(void)
{
    enum { NEEDED = 24 << 10 };
    char room[NEEDED];
    memset(room, 1, sizeof room);
    __asm__ volatile("" ::"r"(room) : "memory"); /* or the compiler would leave it out */
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    /* Threads that go take their stacks along: then what they touched is no base. */
    if (!options.stacks && plan.after != GONE)
        touch_stack();
    if (plan.after == BUSY)
        serve_before();
    pthread_barrier_wait(&settled);
    pthread_barrier_wait(&begin);
    double cpu_before_s = effort_thread_cpu();
    plan.pattern->burst(worker);
    worker->burst_cpu_s = effort_thread_cpu() - cpu_before_s;
    pthread_barrier_wait(&burst_over);
    if (plan.after == BUSY)
        be_busy();
    if (plan.after == COMPUTING)
        compute();
    if (plan.after != GONE)
        pthread_barrier_wait(&end);
    return NULL;
}

static void map_ledgers(void)
{
    /* Every object of a thread, all phases together, cannot be more than this. */
    size_t each = plan.total_bytes / plan.threads * 8 / (size_t)plan.low_bytes + (1u << 20);
    for (size_t i = 0; i < plan.ledger_count; i++)
        ledger_map(&plan.ledgers[i], each);
}

static size_t own_bytes(void)
{
    size_t own = 0;
    for (size_t i = 0; i < plan.ledger_count; i++)
        own += ledger_own_bytes(&plan.ledgers[i]);
    return own;
}

/* Reads memory until the rest is over. Returns the number of samples. */
static size_t watch(void)
{
    double from = clock_seconds();
    size_t count = 0;
    for (;;) {
        double due = (double)count * options.every_s;
        double wait = from + due - clock_seconds();
        if (wait > 0) {
            struct timespec pause = {(time_t)wait, (long)((wait - (double)(time_t)wait) * 1e9)};
            nanosleep(&pause, NULL);
        }
        samples[count].at_s = clock_seconds() - from;
        samples[count++].memory = memory_read();
        if (due + options.every_s > options.rest_s + 1e-9 || count == SAMPLES_MOST)
            return count;
    }
}

static void print_reading(const char *name, const struct memory_reading *memory)
{
    printf("\"%s\": {\"rss_bytes\": %ld, \"anonymous_bytes\": %ld, \"lazy_free_bytes\": %ld, \"statm_bytes\": %ld}", name,
           memory->rss_bytes, memory->anonymous_bytes, memory->lazy_free_bytes, memory->statm_bytes);
}

/* The filter of a container is there before the program is: the program puts it on and
 * starts again under it. */
static void refuse(char **argv)
{
    static const char mark[] = "BENCH_RETURN_REFUSED";
    bool inherited = getenv(mark) != NULL;
    if (!inherited)
        refuse_calls(options.refuse);
    if (!inherited && !options.refuse_late) {
        setenv(mark, "1", 1);
        execv("/proc/self/exe", argv);
        _exit(3);
    }
    refusal_check(options.refuse);
}

int main(int argc, char **argv)
{
    options_parse(argc, argv, &plan, &options);
    if (options.refuse)
        refuse(argv);
    const char *provider = malloc_provider();
    map_ledgers();
    pthread_barrier_init(&plan.all_threads, NULL, plan.threads);
    pthread_barrier_init(&settled, NULL, plan.threads + 1);
    pthread_barrier_init(&begin, NULL, plan.threads + 1);
    pthread_barrier_init(&burst_over, NULL, plan.threads + 1);
    pthread_barrier_init(&end, NULL, plan.threads + 1);

    static struct worker workers[THREADS_MOST];
    struct memory_reading base = memory_read();
    for (unsigned i = 0; i < plan.threads; i++) {
        workers[i].plan = &plan;
        workers[i].index = i;
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            return 3;
    }
    pthread_barrier_wait(&settled);
    usleep(100 * 1000); /* the threads have reached their next barrier and sleep */

    if (!options.stacks)
        base = memory_read();
    struct effort at_start = effort_read(workers, 0);
    double started_s = clock_seconds();
    pthread_barrier_wait(&begin);
    pthread_barrier_wait(&burst_over);
    double burst_s = clock_seconds() - started_s;
    struct effort at_burst_end = effort_read(workers, 0);
    if (plan.after == GONE)
        for (unsigned i = 0; i < plan.threads; i++)
            pthread_join(workers[i].thread, NULL);
    for (size_t i = 0; i < plan.ledger_count; i++)
        ledger_compact(&plan.ledgers[i]);

    unsigned running = plan.after == GONE ? 0 : plan.threads;
    struct effort at_rest = effort_read(workers, running);
    size_t count = watch();
    struct effort at_end = effort_read(workers, running);

    size_t live = 0, survivors = 0, wrong = 0, requests = 0, requested = 0;
    double workers_burst_cpu_s = 0;
    for (size_t i = 0; i < plan.ledger_count; i++) {
        live += ledger_live_bytes(&plan.ledgers[i]);
        survivors += plan.ledgers[i].count;
        wrong += ledger_wrong_bytes(&plan.ledgers[i]);
    }
    for (unsigned i = 0; i < plan.threads; i++) {
        requests += workers[i].requests;
        requested += workers[i].requested_bytes;
        wrong += workers[i].wrong_bytes;
        workers_burst_cpu_s += workers[i].burst_cpu_s;
    }
    size_t own = own_bytes(), page = (size_t)sysconf(_SC_PAGESIZE);
    size_t pages = ledger_pages_touched(plan.ledgers, plan.ledger_count, page);

    printf("{\"program\": \"return\", \"pattern\": \"%s\", \"after\": \"%s\", \"refused\": \"%s\", \"refused_late\": %s,\n",
           plan.pattern->name, afterwards_names[plan.after], options.refuse ? options.refuse : "",
           options.refuse_late ? "true" : "false");
    printf(" \"malloc_provider\": \"%s\", \"seed\": %llu, \"threads\": %u, \"page_bytes\": %zu,\n", provider,
           (unsigned long long)plan.seed, plan.threads, page);
    printf(" \"peak_requested_bytes\": %zu, \"low_bytes\": %.0f, \"high_bytes\": %.0f, \"survive\": %g, \"order\": \"%s\",\n",
           plan.total_bytes, plan.low_bytes, plan.high_bytes, plan.survive,
           plan.random_order ? "random" : "allocation");
    printf(" \"requests\": %zu, \"requested_bytes\": %zu, \"survivors\": %zu, \"wrong_bytes\": %zu,\n", requests, requested,
           survivors, wrong);
    double burst_cpu_s = at_burst_end.process_cpu_s - at_start.process_cpu_s
        - (at_burst_end.observer_cpu_s - at_start.observer_cpu_s);
    double rest_cpu_s = at_end.process_cpu_s - at_rest.process_cpu_s - (at_end.observer_cpu_s - at_rest.observer_cpu_s);
    double workers_rest_cpu_s = at_end.workers_cpu_s - at_rest.workers_cpu_s;
    printf(" \"burst_s\": %.3f, \"burst_cpu_s\": %.4f, \"rest_cpu_s\": %.4f, \"peak_rss_bytes\": %ld,\n", burst_s,
           burst_cpu_s, rest_cpu_s, peak_rss_bytes());
    printf(" \"allocator_burst_cpu_s\": %.4f, \"allocator_rest_cpu_s\": %.4f,\n", burst_cpu_s - workers_burst_cpu_s,
           rest_cpu_s - workers_rest_cpu_s);
    printf(" \"burst_faults\": %ld, \"rest_faults\": %ld, \"rest_sleeps\": %ld, \"stacks_counted\": %s,\n",
           at_burst_end.faults - at_start.faults, at_end.faults - at_rest.faults, at_end.sleeps - at_rest.sleeps,
           options.stacks ? "true" : "false");
    if (plan.generated) {
        printf(" \"drawn\": ");
        print_generated(plan.generated, stdout);
        printf(",\n");
    }
    printf(" \"live_bytes\": %zu, \"own_bytes\": %zu, \"survivor_pages\": %zu, \"bound_above_live_bytes\": %lld,\n ", live,
           own, pages, (long long)(pages * page) - (long long)live);
    print_reading("base", &base);
    printf(",\n \"samples\": [\n");
    for (size_t i = 0; i < count; i++) {
        long long above = samples[i].memory.rss_bytes - base.rss_bytes - (long long)own - (long long)live;
        printf("  {\"at_s\": %.3f, ", samples[i].at_s);
        print_reading("memory", &samples[i].memory);
        printf(", \"above_live_bytes\": %lld}%s\n", above, i + 1 < count ? "," : "");
    }
    printf(" ]}\n");

    atomic_store(&stop_busy, true);
    if (plan.after != GONE) {
        pthread_barrier_wait(&end);
        for (unsigned i = 0; i < plan.threads; i++)
            pthread_join(workers[i].thread, NULL);
    }
    return wrong ? 4 : 0;
}
