/* The patterns of allocation after which resident memory is watched. */
#ifndef BENCH_RETURN_PATTERNS_H
#define BENCH_RETURN_PATTERNS_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "random.h"
#include "return/ledger.h"

enum { STREAMS = 18, THREADS_MOST = 1024, LEDGERS_MOST = THREADS_MOST };

/* What the threads do when the burst is over. */
enum afterwards { ASLEEP, GONE, BUSY, COMPUTING };

/* What one run does; the same for all its threads. */
struct plan {
    const struct pattern *pattern;
    unsigned threads;
    size_t total_bytes; /* requested at the peak, over all threads */
    double low_bytes, high_bytes;
    double survive; /* share of the objects that stay */
    int random_order; /* of the frees; else the order of allocation */
    uint64_t seed;
    enum afterwards after;
    const struct generated *generated; /* what a generated pattern drew; null for others */
    struct ledger ledgers[LEDGERS_MOST];
    size_t ledger_count;
    pthread_barrier_t all_threads; /* the worker threads among themselves */
};

struct worker {
    struct plan *plan;
    unsigned index;
    pthread_t thread;
    size_t requests;
    size_t requested_bytes;
    size_t wrong_bytes; /* met while freeing */
    double burst_cpu_s; /* of this thread, in the burst */
};

struct pattern {
    const char *name;
    const char *what;
    double low_bytes, high_bytes;
    double survive;
    unsigned threads; /* 0: as many as asked for */
    size_t (*ledgers)(const struct plan *plan);
    void (*burst)(struct worker *worker);
    void (*draw)(struct plan *plan); /* settles the plan from its seed; null: the options settle it */
};

extern const struct pattern patterns[];
extern const size_t pattern_count;

const struct pattern *pattern_named(const char *name);

/* The steps that patterns are made of. Each works on one ledger in the calling thread. */
struct random_state generator(const struct worker *worker, uint64_t purpose);
void allocate(struct worker *worker, struct ledger *ledger, size_t size_bytes);
void thin(struct worker *worker, struct ledger *ledger, size_t first, double survive, struct random_state *fates);

#endif
