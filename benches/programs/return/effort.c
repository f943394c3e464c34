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

/* The clocks of process and workers cannot be read at once. Where the observer was
 * interrupted between them, the workers' time would pass for the allocator's: then they are
 * read again. */
static void read_clocks(struct effort *effort, const struct worker *workers, unsigned running)
{
    enum { ATTEMPTS = 100 };
    static const double APART_S = 100e-6;
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        effort->process_cpu_s = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
        effort->observer_cpu_s = effort_thread_cpu();
        effort->workers_cpu_s = 0;
        for (unsigned i = 0; i < running; i++) {
            clockid_t clock;
            if (pthread_getcpuclockid(workers[i].thread, &clock) == 0)
                effort->workers_cpu_s += seconds_of(clock);
        }
        double others_s = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - effort->process_cpu_s
            - (effort_thread_cpu() - effort->observer_cpu_s);
        if (others_s < APART_S)
            return;
    }
}

struct effort effort_read(const struct worker *workers, unsigned running)
{
    struct effort effort = {0};
    read_clocks(&effort, workers, running);
    struct rusage all, observer;
    getrusage(RUSAGE_SELF, &all);
    getrusage(RUSAGE_THREAD, &observer);
    effort.faults = all.ru_minflt - observer.ru_minflt;
    effort.sleeps = all.ru_nvcsw - observer.ru_nvcsw;
    return effort;
}
