/* launch: runs a program of others once and prints what it cost as one JSON object.
 *
 *   launch PRELOAD COMMAND [ARGUMENT]...
 *
 * Small on purpose: the kernel counts a process's peak from what its parent had resident
 * when it forked, which for a Python driver would be tens of MiB. The program's output
 * goes to /dev/null, its errors stay. PRELOAD is set for the program only. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "report.h"

static double seconds(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec * 1e-6;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: launch PRELOAD COMMAND [ARGUMENT]...\n");
        return 64;
    }
    double from = clock_seconds();
    pid_t child = fork();
    if (child < 0)
        return 3;
    if (child == 0) {
        int nowhere = open("/dev/null", O_RDWR);
        dup2(nowhere, 0);
        dup2(nowhere, 1);
        setenv("LD_PRELOAD", argv[1], 1);
        execvp(argv[2], argv + 2);
        fprintf(stderr, "launch: cannot start %s\n", argv[2]);
        _exit(127);
    }
    int status;
    if (waitpid(child, &status, 0) != child)
        return 3;
    double wall_s = clock_seconds() - from;
    /* All descendants that were waited for, and the largest of them. */
    struct rusage use;
    getrusage(RUSAGE_CHILDREN, &use);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    printf("{\"wall_s\": %.6f, \"cpu_s\": %.6f, \"peak_rss_bytes\": %ld, \"faults\": %ld, \"exit\": %d}\n", wall_s,
           seconds(use.ru_utime) + seconds(use.ru_stime), use.ru_maxrss * 1024, use.ru_minflt, code);
    return code;
}
