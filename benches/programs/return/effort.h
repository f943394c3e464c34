/* What a stretch of time cost: CPU by who spent it, page faults, sleeps. The part that
 * neither the benchmark's threads nor its observer spent is the allocator's threads'. */
#ifndef BENCH_RETURN_EFFORT_H
#define BENCH_RETURN_EFFORT_H

#include "return/patterns.h"

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

#endif
