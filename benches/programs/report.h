/* What every benchmark program reports about itself: clocks, CPU time, and which
 * object answers malloc. None of these touches the heap except malloc_provider. */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static inline double clock_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* User and system time of the whole process, its allocator's threads included. */
static inline double cpu_seconds(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec)
        + (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e-6;
}

/* The most that was resident since exec. Not ru_maxrss, which starts at what the
 * parent had resident when it forked. */
static inline long peak_rss_bytes(void)
{
    char text[4096];
    int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (file >= 0)
        close(file);
    text[length > 0 ? length : 0] = '\0';
    const char *field = strstr(text, "\nVmHWM:");
    return field ? strtol(field + 7, NULL, 10) * 1024 : -1;
}

/* The path of the object that defines the malloc in force: the driver discards a
 * run whose preload did not happen. */
static inline const char *malloc_provider(void)
{
    Dl_info info;
    void *symbol = dlsym(RTLD_DEFAULT, "malloc");
    if (symbol && dladdr(symbol, &info) && info.dli_fname)
        return info.dli_fname;
    return "unknown";
}

#endif
