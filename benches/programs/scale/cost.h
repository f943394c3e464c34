/* What a stretch of time cost a process whose own threads are known: used by the programs
 * of this folder. The rest of the process's CPU time is the allocator's threads'. */
#ifndef BENCH_SCALE_COST_H
#define BENCH_SCALE_COST_H

#include <stdint.h>
#include <sys/resource.h>
#include <time.h>

struct cost {
    double process_cpu_s;
    double own_cpu_s; /* of the calling thread */
    long faults;
    long other_sleeps; /* voluntary switches of all threads but the caller */
};

static inline double cost_clock(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static inline struct cost cost_read(void)
{
    struct rusage all, own;
    getrusage(RUSAGE_SELF, &all);
    getrusage(RUSAGE_THREAD, &own);
    return (struct cost){cost_clock(CLOCK_PROCESS_CPUTIME_ID), cost_clock(CLOCK_THREAD_CPUTIME_ID), all.ru_minflt,
                         all.ru_nvcsw - own.ru_nvcsw};
}

static inline void sleep_until(double monotonic_s)
{
    struct timespec at = {(time_t)monotonic_s, (long)((monotonic_s - (double)(time_t)monotonic_s) * 1e9)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) != 0) {
    }
}

#endif
