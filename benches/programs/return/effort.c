/* Nanosecond clocks for CPU time: /proc counts in ticks of 10 ms, too coarse for a
 * thread that is meant to cost nothing. */
#include "return/effort.h"

#include <sys/resource.h>
#include <time.h>

static double seconds_of(clockid_t clock)
{
    struct timespec now = {0, 0};
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

double effort_thread_cpu(void)
{
    return seconds_of(CLOCK_THREAD_CPUTIME_ID);
}

struct effort effort_read(const struct worker *workers, unsigned running)
{
    struct effort effort = {.process_cpu_s = seconds_of(CLOCK_PROCESS_CPUTIME_ID)};
    for (unsigned i = 0; i < running; i++) {
        clockid_t clock;
        if (pthread_getcpuclockid(workers[i].thread, &clock) == 0)
            effort.workers_cpu_s += seconds_of(clock);
    }
    struct rusage all, observer;
    getrusage(RUSAGE_SELF, &all);
    getrusage(RUSAGE_THREAD, &observer);
    effort.observer_cpu_s = effort_thread_cpu();
    effort.faults = all.ru_minflt - observer.ru_minflt;
    effort.sleeps = all.ru_nvcsw - observer.ru_nvcsw;
    return effort;
}
