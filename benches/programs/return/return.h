/* What the files of `return` share: the ledger, the patterns, what a run cost, memory, options, refused calls. */
#ifndef BENCH_RETURN_H
#define BENCH_RETURN_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "random.h"

/* The benchmark's own record of its objects, kept out of the heap under test.
 *
 * Entries lie in a private mapping whose pages are counted, so that they can be
 * subtracted from what is measured. Each object is filled with its tag; a byte that
 * reads otherwise is memory that the allocator lost or gave out twice. */

struct entry {
    unsigned char *at; /* null once freed */
    uint32_t size_bytes;
    uint32_t tag; /* low byte fills the object */
};

struct ledger {
    struct entry *entries;
    size_t count;
    size_t capacity;
    size_t mark; /* where the present phase begins; the patterns' own use */
};

void ledger_map(struct ledger *ledger, size_t capacity);

/* Allocates, fills every byte and records. Ends the program when memory is short. */
void ledger_allocate(struct ledger *ledger, size_t size_bytes);

/* Checks the object's first and last byte and frees it. Returns wrong bytes seen. */
size_t ledger_free(struct entry *entry);

/* Squeezes freed entries out, from entry `first` on. */
void ledger_squeeze(struct ledger *ledger, size_t first);

/* Squeezes all freed entries out and unmaps the pages that are no longer needed. */
void ledger_compact(struct ledger *ledger);

/* Bytes of requests in the ledger, and bytes of its own that are resident. */
size_t ledger_live_bytes(const struct ledger *ledger);
size_t ledger_own_bytes(const struct ledger *ledger);

/* Wrong bytes over every byte of every object still recorded. */
size_t ledger_wrong_bytes(const struct ledger *ledger);

/* The number of pages that hold at least one byte of a recorded object, over all
 * ledgers: what no return of whole pages can go below at these addresses. */
size_t ledger_pages_touched(const struct ledger *ledgers, size_t count, size_t page_bytes);

/* The patterns of allocation after which resident memory is watched. */

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

/* What a stretch of time cost: CPU by who spent it, page faults, sleeps. The part that
 * neither the benchmark's threads nor its observer spent is the allocator's threads'. */

struct effort {
    double process_cpu_s;
    double observer_cpu_s; /* the calling thread, which reads memory */
    double workers_cpu_s;  /* those that still run */
    long faults;           /* minor ones, without the observer's */
    long sleeps;           /* voluntary switches, without the observer's */
};

/* Called by the observer. Workers that have been joined must not be asked for. */
struct effort effort_read(const struct worker *workers, unsigned running);

/* CPU time of the calling thread. */
double effort_thread_cpu(void);

/* A random pattern: sizes, lifetimes, phases, threads and what follows are
 * drawn from the seed alone. Used by patterns.c; described in the output by main.c. */

void draw_generated(struct plan *plan);
void burst_generated(struct worker *worker);

/* Writes what was drawn as a JSON array, one object a phase. */
void print_generated(const struct generated *generated, FILE *out);

/* Reads this process's own resident memory, without touching the heap. */

struct memory_reading {
    long rss_bytes;       /* Rss of smaps_rollup: a walk of the page tables, exact */
    long anonymous_bytes; /* its anonymous part */
    long lazy_free_bytes; /* given to MADV_FREE: still resident until memory is short */
    long statm_bytes;     /* what top shows; lags by some pages per CPU on new kernels */
};

struct memory_reading memory_read(void);

/* The command line of `return`: what main.c runs and how long it watches. */

enum { SAMPLES_MOST = 4096 };

struct options {
    double rest_s;
    double every_s;
    const char *refuse;
    bool refuse_late; /* by the program itself, when the allocator already runs */
    bool stacks; /* counted against the allocator */
};

/* Names of enum afterwards. */
enum { AFTERWARDS = 4 };
extern const char *const afterwards_names[AFTERWARDS];

/* Settles the plan and the options, or ends the program with the usage. */
void options_parse(int argc, char **argv, struct plan *plan, struct options *options);

/* Refuses system calls to this process, as container profiles and sandboxes do. */

/* `list`: names joined by commas, each with an optional errno: "membarrier:ENOSYS".
 * The default is EPERM, which Docker's default profile answers. Applies to every
 * thread of the process, also to those an allocator has already started. Exits
 * with a message when the filter cannot be installed. */
void refuse_calls(const char *list);

/* Exits with a message unless each call is answered as the list says. */
void refusal_check(const char *list);

#endif
