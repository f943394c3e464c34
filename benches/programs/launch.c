/* launch: runs a program of others once and prints what it cost as one JSON object.
 *
 *   launch [-n TIMES] PRELOAD COMMAND [ARGUMENT]...
 *
 * Small on purpose: the kernel counts a process's peak from what its parent had resident
 * when it forked, which for a Python driver would be tens of MiB. The program's output
 * goes to /dev/null, its errors stay. PRELOAD is set for the program only.
 * With -n it runs so often, one after another; wall and CPU seconds and faults are the means. */
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

static pid_t start(char **argv)
{
    pid_t child = fork();
    if (child != 0)
        return child;
    int nowhere = open("/dev/null", O_RDWR);
    dup2(nowhere, 0);
    dup2(nowhere, 1);
    setenv("LD_PRELOAD", argv[0], 1);
    execvp(argv[1], argv + 1);
    fprintf(stderr, "launch: cannot start %s\n", argv[1]);
    _exit(127);
}

int main(int argc, char **argv)
{
    int times = 1, from_argument = 1;
    if (argc > 2 && strcmp(argv[1], "-n") == 0) {
        times = atoi(argv[2]);
        from_argument = 3;
    }
    if (argc - from_argument < 2 || times < 1) {
        fprintf(stderr, "usage: launch [-n TIMES] PRELOAD COMMAND [ARGUMENT]...\n");
        return 64;
    }
    double from = clock_seconds();
    int code = 0;
    for (int turn = 0; turn < times && code == 0; turn++) {
        pid_t child = start(argv + from_argument);
        int status;
        if (child < 0 || waitpid(child, &status, 0) != child)
            return 3;
        code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    double wall_s = (clock_seconds() - from) / times;
    /* All descendants that were waited for, and the largest of them. */
    struct rusage use;
    getrusage(RUSAGE_CHILDREN, &use);
    printf("{\"wall_s\": %.6f, \"cpu_s\": %.6f, \"peak_rss_bytes\": %ld, \"faults\": %ld, \"exit\": %d}\n", wall_s,
           (seconds(use.ru_utime) + seconds(use.ru_stime)) / times, use.ru_maxrss * 1024, use.ru_minflt / times, code);
    return code;
}
