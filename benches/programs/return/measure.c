/* What a run costs and holds: clocks and memory, read without touching the heap. */
#include "return/return.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* Nanosecond clocks for CPU time: /proc counts in ticks of 10 ms, too coarse for a
 * thread that is meant to cost nothing. */
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

/* Reads /proc/self/smaps_rollup and /proc/self/statm through a buffer of its own:
 * stdio would allocate, and the figures are about the allocator. A file that
 * cannot be read ends the program: a zero would be taken for a result. */
static void read_whole(const char *path, char *text, size_t capacity)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    size_t length = 0;
    if (file >= 0) {
        ssize_t got;
        while (length + 1 < capacity && (got = read(file, text + length, capacity - 1 - length)) > 0)
            length += (size_t)got;
        close(file);
    }
    if (length == 0) {
        dprintf(2, "return: cannot read %s\n", path);
        _exit(3);
    }
    text[length] = '\0';
}

static long kib_field(const char *text, const char *name, int required)
{
    const char *at = strstr(text, name);
    if (!at) {
        if (!required)
            return 0;
        dprintf(2, "return: no %s in smaps_rollup\n", name);
        _exit(3);
    }
    return strtol(at + strlen(name), NULL, 10) * 1024;
}

struct memory_reading memory_read(void)
{
    char text[8192];
    struct memory_reading reading;
    read_whole("/proc/self/smaps_rollup", text, sizeof text);
    reading.rss_bytes = kib_field(text, "\nRss:", 1);
    reading.anonymous_bytes = kib_field(text, "\nAnonymous:", 1);
    reading.lazy_free_bytes = kib_field(text, "\nLazyFree:", 0);
    read_whole("/proc/self/statm", text, sizeof text);
    const char *second = strchr(text, ' ');
    reading.statm_bytes = second ? strtol(second, NULL, 10) * sysconf(_SC_PAGESIZE) : 0;
    return reading;
}
