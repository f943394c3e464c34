/* Each pattern is a function that one worker thread runs; it leaves the surviving
 * objects in the ledgers of the plan. Sizes and survivors come from generators of
 * their own, so survival does not depend on size and a seed repeats exactly. */
#include "return/return.h"

#include <string.h>

void allocate(struct worker *worker, struct ledger *ledger, size_t size_bytes)
{
    ledger_allocate(ledger, size_bytes);
    worker->requests++;
    worker->requested_bytes += size_bytes;
}

/* Fills `ledger` with objects until `quota_bytes` are requested. */
static void fill(struct worker *worker, struct ledger *ledger, size_t quota_bytes, double low_bytes, double high_bytes,
                 struct random_state *sizes)
{
    size_t before = worker->requested_bytes;
    while (worker->requested_bytes - before < quota_bytes)
        allocate(worker, ledger, random_log_uniform(sizes, low_bytes, high_bytes));
}

/* Requests rarely end in the order they began: frees go in random order unless the
 * plan asks for the order of allocation. */
static void shuffle(struct ledger *ledger, size_t first, struct random_state *order)
{
    for (size_t i = ledger->count; i > first + 1; i--) {
        size_t other = first + random_below(order, (uint32_t)(i - first));
        struct entry swapped = ledger->entries[i - 1];
        ledger->entries[i - 1] = ledger->entries[other];
        ledger->entries[other] = swapped;
    }
}

/* Frees what does not survive, from entry `first` on. */
void thin(struct worker *worker, struct ledger *ledger, size_t first, double survive, struct random_state *fates)
{
    if (worker->plan->random_order)
        shuffle(ledger, first, fates);
    for (size_t i = first; i < ledger->count; i++)
        if (random_unit(fates) >= survive)
            worker->wrong_bytes += ledger_free(&ledger->entries[i]);
}

struct random_state generator(const struct worker *worker, uint64_t purpose)
{
    return random_seeded(worker->plan->seed * 1000003u + worker->index * 17u + purpose);
}

/* survivors, tiny, mid, idle: all threads allocate their share, the peak is whole,
 * then each frees its own. */
static void burst_own(struct worker *worker)
{
    struct plan *plan = worker->plan;
    struct ledger *ledger = &plan->ledgers[worker->index];
    struct random_state sizes = generator(worker, 1), fates = generator(worker, 2);
    fill(worker, ledger, plan->total_bytes / plan->threads, plan->low_bytes, plan->high_bytes, &sizes);
    pthread_barrier_wait(&plan->all_threads);
    thin(worker, ledger, 0, plan->survive, &fates);
}

/* handoff: the first half of the threads allocates, the second half frees. */
static void burst_handoff(struct worker *worker)
{
    struct plan *plan = worker->plan;
    unsigned makers = plan->threads / 2;
    if (worker->index < makers) {
        struct random_state sizes = generator(worker, 1);
        fill(worker, &plan->ledgers[worker->index], plan->total_bytes / makers, plan->low_bytes, plan->high_bytes,
             &sizes);
    }
    pthread_barrier_wait(&plan->all_threads);
    if (worker->index >= makers) {
        struct random_state fates = generator(worker, 2);
        for (unsigned i = worker->index - makers; i < makers; i += plan->threads - makers)
            thin(worker, &plan->ledgers[i], 0, plan->survive, &fates);
    }
}

/* phases: eight ranges of sizes in turn, low to high, a third of the total each, so
 * that the survivors of all and the last phase together stay near the total. */
static void burst_phases(struct worker *worker)
{
    enum { PHASES = 8 };
    struct plan *plan = worker->plan;
    struct ledger *ledger = &plan->ledgers[worker->index];
    struct random_state sizes = generator(worker, 1), fates = generator(worker, 2);
    double step = pow(plan->high_bytes / plan->low_bytes, 1.0 / PHASES);
    double low = plan->low_bytes;
    for (int phase = 0; phase < PHASES; phase++, low *= step) {
        size_t first = ledger->count;
        fill(worker, ledger, plan->total_bytes / 3 / plan->threads, low, low * step, &sizes);
        pthread_barrier_wait(&plan->all_threads);
        thin(worker, ledger, first, plan->survive, &fates);
        pthread_barrier_wait(&plan->all_threads);
    }
}

/* subscribers: one thread serves interleaved streams. Each collects a list of events
 * of 20 to 40 KB with a few small objects decoded from each, and frees it whole when
 * the stream ends; one small object in a hundred outlives all streams. */
static void burst_subscribers(struct worker *worker)
{
    struct plan *plan = worker->plan;
    struct ledger *stays = &plan->ledgers[STREAMS];
    struct random_state sizes = generator(worker, 1), fates = generator(worker, 2), turns = generator(worker, 3);
    size_t collected[STREAMS] = {0};
    int ended[STREAMS] = {0};
    for (int open = STREAMS; open > 0;) {
        uint32_t stream = random_below(&turns, STREAMS);
        if (ended[stream])
            continue;
        struct ledger *list = &plan->ledgers[stream];
        size_t before = worker->requested_bytes;
        allocate(worker, list, 20000 + random_below(&sizes, 20001));
        for (int part = 0; part < 8; part++) {
            size_t size_bytes = random_log_uniform(&sizes, plan->low_bytes, plan->high_bytes);
            allocate(worker, random_unit(&fates) < plan->survive ? stays : list, size_bytes);
        }
        collected[stream] += worker->requested_bytes - before;
        if (collected[stream] >= plan->total_bytes / STREAMS) {
            thin(worker, list, 0, 0.0, &fates);
            ended[stream] = 1;
            open--;
        }
    }
}

/* buffers: each thread keeps a few buffers and replaces one at random, over and
 * over, until sixteen times its share has passed; then all go. */
static void burst_buffers(struct worker *worker)
{
    enum { ROUNDS = 16 };
    struct plan *plan = worker->plan;
    struct ledger *ledger = &plan->ledgers[worker->index];
    struct random_state sizes = generator(worker, 1), fates = generator(worker, 2);
    size_t share = plan->total_bytes / plan->threads, held = 0;
    while (worker->requested_bytes < share * ROUNDS) {
        size_t size_bytes = random_log_uniform(&sizes, plan->low_bytes, plan->high_bytes);
        while (ledger->count && held + size_bytes > share) {
            struct entry *gone = &ledger->entries[random_below(&fates, (uint32_t)ledger->count)];
            held -= gone->size_bytes;
            worker->wrong_bytes += ledger_free(gone);
            *gone = ledger->entries[--ledger->count];
        }
        allocate(worker, ledger, size_bytes);
        held += size_bytes;
    }
    thin(worker, ledger, 0, plan->survive, &fates);
}

static size_t one_each(const struct plan *plan)
{
    return plan->threads;
}

static size_t one_a_stream(const struct plan *plan)
{
    (void)plan;
    return STREAMS + 1;
}

#define KIB 1024.0
#define MIB (1024.0 * 1024.0)

const struct pattern patterns[] = {
    {"survivors", "16 B-64 KiB, 2 % survive at random", 16, 64 * KIB, 0.02, 0, one_each, burst_own, NULL},
    {"tiny", "16-512 B, 0.5 % survive", 16, 512, 0.005, 0, one_each, burst_own, NULL},
    {"mid", "4-128 KiB, 5 % survive", 4 * KIB, 128 * KIB, 0.05, 0, one_each, burst_own, NULL},
    {"idle", "16 B-64 KiB, all freed", 16, 64 * KIB, 0, 0, one_each, burst_own, NULL},
    {"handoff", "16 B-64 KiB, half the threads allocate, the others free all", 16, 64 * KIB, 0, 0, one_each,
     burst_handoff, NULL},
    {"phases", "eight ranges from 16 B to 64 KiB in turn, 5 % of each survive", 16, 64 * KIB, 0.05, 0, one_each,
     burst_phases, NULL},
    {"subscribers", "one thread, 18 interleaved streams of 20-40 KB events, small things stay", 32, 512, 0.01, 1,
     one_a_stream, burst_subscribers, NULL},
    {"buffers", "64 KiB-16 MiB come and go, all freed", 64 * KIB, 16 * MIB, 0, 0, one_each, burst_buffers, NULL},
    {"generated", "sizes, lifetimes, phases, threads and what they do afterwards, all from --seed", 8, 4 * MIB, 0, 0,
     one_each, burst_generated, draw_generated},
};
const size_t pattern_count = sizeof patterns / sizeof *patterns;

const struct pattern *pattern_named(const char *name)
{
    for (size_t i = 0; i < pattern_count; i++)
        if (strcmp(patterns[i].name, name) == 0)
            return &patterns[i];
    return NULL;
}
