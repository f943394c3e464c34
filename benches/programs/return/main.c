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
 * Rounding, metadata and caches of the allocator all count against it. Beside it
 * stands bound_above_live: the pages that hold a byte of a survivor, less live. */
#include <getopt.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "report.h"
#include "return/memory.h"
#include "return/patterns.h"
#include "return/refuse.h"

enum { SAMPLES_MOST = 4096, THREADS_MOST = 32 };

enum afterwards { ASLEEP, GONE, BUSY };
static const char *const afterwards_names[] = {"asleep", "gone", "busy"};

struct options {
    enum afterwards after;
    double rest_s;
    double every_s;
    const char *refuse;
};

struct sample {
    double at_s;
    struct memory_reading memory;
};

static struct plan plan;
static struct options options = {.after = ASLEEP, .rest_s = 6.0, .every_s = 0.25};
static pthread_barrier_t begin, burst_over, end;
static atomic_bool stop_busy;
static struct sample samples[SAMPLES_MOST];

/* A thread that serves on: small blocks, few at a time, a few thousand a second. */
static void be_busy(void)
{
    void *block[32];
    struct random_state sizes = random_seeded(7);
    struct timespec pause = {0, 2 * 1000 * 1000};
    while (!atomic_load_explicit(&stop_busy, memory_order_relaxed)) {
        for (int i = 0; i < 32; i++) {
            size_t size_bytes = 16 + random_below(&sizes, 1009);
            block[i] = malloc(size_bytes);
            if (block[i])
                memset(block[i], 1, size_bytes);
        }
        for (int i = 0; i < 32; i++)
            free(block[i]);
        nanosleep(&pause, NULL);
    }
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    pthread_barrier_wait(&begin);
    plan.pattern->burst(worker);
    pthread_barrier_wait(&burst_over);
    if (options.after == BUSY)
        be_busy();
    if (options.after != GONE)
        pthread_barrier_wait(&end);
    return NULL;
}

static void usage(int status)
{
    FILE *out = status ? stderr : stdout;
    fprintf(out,
            "usage: return [options] PATTERN\n"
            "  --mib N           requested at the peak, all threads together (512)\n"
            "  --threads N       worker threads (4)\n"
            "  --after WHAT      the threads afterwards: asleep, gone, busy (asleep)\n"
            "  --low B --high B  sizes, log-uniform (the pattern's)\n"
            "  --survive SHARE   of the objects (the pattern's)\n"
            "  --order WHAT      of the frees: random, allocation (random)\n"
            "  --rest S          seconds watched after the burst (6)\n"
            "  --every S         between two readings (0.25)\n"
            "  --refuse LIST     system calls refused: process_madvise, membarrier, madvise,\n"
            "                    mremap; each may end in :ENOSYS (EPERM)\n"
            "  --seed N          sizes and survivors (1)\n"
            "patterns:\n");
    for (size_t i = 0; i < pattern_count; i++)
        fprintf(out, "  %-12s %s\n", patterns[i].name, patterns[i].what);
    exit(status);
}

static void parse(int argc, char **argv)
{
    static const struct option names[] = {
        {"mib", 1, 0, 'm'},  {"threads", 1, 0, 't'}, {"after", 1, 0, 'a'}, {"low", 1, 0, 'l'},
        {"high", 1, 0, 'h'}, {"survive", 1, 0, 's'}, {"rest", 1, 0, 'r'},  {"every", 1, 0, 'e'},
        {"refuse", 1, 0, 'f'}, {"seed", 1, 0, 'd'},  {"order", 1, 0, 'o'}, {"help", 0, 0, 'H'},  {0, 0, 0, 0},
    };
    double low = 0, high = 0, survive = -1, mib = 512;
    unsigned threads = 4;
    plan.seed = 1;
    plan.random_order = 1;
    for (int option; (option = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        switch (option) {
        case 'm': mib = atof(optarg); break;
        case 't': threads = (unsigned)atoi(optarg); break;
        case 'l': low = atof(optarg); break;
        case 'h': high = atof(optarg); break;
        case 's': survive = atof(optarg); break;
        case 'r': options.rest_s = atof(optarg); break;
        case 'e': options.every_s = atof(optarg); break;
        case 'f': options.refuse = optarg; break;
        case 'd': plan.seed = strtoull(optarg, NULL, 10); break;
        case 'o':
            plan.random_order = strcmp(optarg, "random") == 0;
            if (!plan.random_order && strcmp(optarg, "allocation") != 0)
                usage(64);
            break;
        case 'a': {
            int i = 0;
            while (i < 3 && strcmp(optarg, afterwards_names[i]) != 0)
                i++;
            if (i == 3)
                usage(64);
            options.after = (enum afterwards)i;
            break;
        }
        case 'H': usage(0); break;
        default: usage(64);
        }
    }
    if (optind + 1 != argc || !(plan.pattern = pattern_named(argv[optind])))
        usage(64);
    plan.threads = plan.pattern->threads ? plan.pattern->threads : threads;
    plan.low_bytes = low > 0 ? low : plan.pattern->low_bytes;
    plan.high_bytes = high > 0 ? high : plan.pattern->high_bytes;
    plan.survive = survive >= 0 ? survive : plan.pattern->survive;
    plan.total_bytes = (size_t)(mib * 1024 * 1024);
    plan.ledger_count = plan.pattern->ledgers(&plan);
    if (plan.threads < 1 || plan.threads > THREADS_MOST || plan.low_bytes < 1 || plan.high_bytes > 1u << 30
        || plan.low_bytes > plan.high_bytes || plan.total_bytes == 0 || options.every_s <= 0
        || options.rest_s / options.every_s + 2 > SAMPLES_MOST
        || (strcmp(plan.pattern->name, "handoff") == 0 && plan.threads < 2))
        usage(64);
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

int main(int argc, char **argv)
{
    parse(argc, argv);
    if (options.refuse)
        refuse_calls(options.refuse);
    const char *provider = malloc_provider();
    map_ledgers();
    pthread_barrier_init(&plan.all_threads, NULL, plan.threads);
    pthread_barrier_init(&begin, NULL, plan.threads + 1);
    pthread_barrier_init(&burst_over, NULL, plan.threads + 1);
    pthread_barrier_init(&end, NULL, plan.threads + 1);

    static struct worker workers[THREADS_MOST];
    for (unsigned i = 0; i < plan.threads; i++) {
        workers[i].plan = &plan;
        workers[i].index = i;
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            return 3;
    }
    usleep(100 * 1000); /* the threads have reached their barrier and sleep */

    struct memory_reading base = memory_read();
    double started_s = clock_seconds(), cpu_before_s = cpu_seconds();
    pthread_barrier_wait(&begin);
    pthread_barrier_wait(&burst_over);
    double burst_s = clock_seconds() - started_s, burst_cpu_s = cpu_seconds() - cpu_before_s;
    if (options.after == GONE)
        for (unsigned i = 0; i < plan.threads; i++)
            pthread_join(workers[i].thread, NULL);
    for (size_t i = 0; i < plan.ledger_count; i++)
        ledger_compact(&plan.ledgers[i]);

    double cpu_resting_s = cpu_seconds();
    size_t count = watch();
    double rest_cpu_s = cpu_seconds() - cpu_resting_s;

    size_t live = 0, survivors = 0, wrong = 0, requests = 0, requested = 0;
    for (size_t i = 0; i < plan.ledger_count; i++) {
        live += ledger_live_bytes(&plan.ledgers[i]);
        survivors += plan.ledgers[i].count;
        wrong += ledger_wrong_bytes(&plan.ledgers[i]);
    }
    for (unsigned i = 0; i < plan.threads; i++) {
        requests += workers[i].requests;
        requested += workers[i].requested_bytes;
        wrong += workers[i].wrong_bytes;
    }
    size_t own = own_bytes(), page = (size_t)sysconf(_SC_PAGESIZE);
    size_t pages = ledger_pages_touched(plan.ledgers, plan.ledger_count, page);

    printf("{\"program\": \"return\", \"pattern\": \"%s\", \"after\": \"%s\", \"refused\": \"%s\",\n", plan.pattern->name,
           afterwards_names[options.after], options.refuse ? options.refuse : "");
    printf(" \"malloc_provider\": \"%s\", \"seed\": %llu, \"threads\": %u, \"page_bytes\": %zu,\n", provider,
           (unsigned long long)plan.seed, plan.threads, page);
    printf(" \"peak_requested_bytes\": %zu, \"low_bytes\": %.0f, \"high_bytes\": %.0f, \"survive\": %g, \"order\": \"%s\",\n",
           plan.total_bytes, plan.low_bytes, plan.high_bytes, plan.survive,
           plan.random_order ? "random" : "allocation");
    printf(" \"requests\": %zu, \"requested_bytes\": %zu, \"survivors\": %zu, \"wrong_bytes\": %zu,\n", requests, requested,
           survivors, wrong);
    printf(" \"burst_s\": %.3f, \"burst_cpu_s\": %.3f, \"rest_cpu_s\": %.3f, \"peak_rss_bytes\": %ld,\n", burst_s,
           burst_cpu_s, rest_cpu_s, peak_rss_bytes());
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
    if (options.after != GONE) {
        pthread_barrier_wait(&end);
        for (unsigned i = 0; i < plan.threads; i++)
            pthread_join(workers[i].thread, NULL);
    }
    return wrong ? 4 : 0;
}
