/* speed: runs one case of allocation in a number of threads and prints one JSON
 * object with its time per operation, CPU time and peak of resident memory. */
#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"
#include "speed/cases.h"

enum { THREADS_MOST = 64 };

struct runner {
    pthread_t thread;
    unsigned index;
    uint64_t operations;
};

static struct team team = {.threads = 1};
static const struct speed_case *chosen;
static pthread_barrier_t start;

void *must_allocate(size_t size_bytes)
{
    volatile char *at = malloc(size_bytes);
    if (!at) {
        fprintf(stderr, "speed: malloc(%zu) failed\n", size_bytes);
        _Exit(3);
    }
    at[0] = 1;
    at[size_bytes - 1] = 1;
    return (void *)at;
}

static const struct speed_case *case_named(const char *name)
{
    for (size_t i = 0; i < single_case_count; i++)
        if (strcmp(single_cases[i].name, name) == 0)
            return &single_cases[i];
    for (size_t i = 0; i < threaded_case_count; i++)
        if (strcmp(threaded_cases[i].name, name) == 0)
            return &threaded_cases[i];
    return NULL;
}

static void usage(int status)
{
    FILE *out = status ? stderr : stdout;
    fprintf(out, "usage: speed [--threads N] [--rounds-percent P] CASE\n");
    for (size_t i = 0; i < single_case_count; i++)
        fprintf(out, "  %-10s %s\n", single_cases[i].name, single_cases[i].what);
    for (size_t i = 0; i < threaded_case_count; i++)
        fprintf(out, "  %-10s %s\n", threaded_cases[i].name, threaded_cases[i].what);
    exit(status);
}

static void *run(void *argument)
{
    struct runner *runner = argument;
    pthread_barrier_wait(&start);
    runner->operations = chosen->run(&team, runner->index);
    return NULL;
}

int main(int argc, char **argv)
{
    static const struct option names[] = {
        {"threads", 1, 0, 't'}, {"rounds-percent", 1, 0, 'p'}, {"help", 0, 0, 'H'}, {0, 0, 0, 0}};
    double percent = 100;
    for (int option; (option = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        if (option == 't')
            team.threads = (unsigned)atoi(optarg);
        else if (option == 'p')
            percent = atof(optarg);
        else
            usage(option == 'H' ? 0 : 64);
    }
    if (optind + 1 != argc || !(chosen = case_named(argv[optind])) || team.threads < 1
        || team.threads > THREADS_MOST || percent <= 0)
        usage(64);
    if (team.threads % chosen->threads_multiple)
        team.threads += chosen->threads_multiple - team.threads % chosen->threads_multiple;
    team.rounds = (uint64_t)((double)chosen->rounds * percent / 100) + 1;
    const char *provider = malloc_provider();
    if (chosen->prepare)
        team.shared = chosen->prepare(&team);

    static struct runner runners[THREADS_MOST];
    pthread_barrier_init(&start, NULL, team.threads + 1);
    for (unsigned i = 0; i < team.threads; i++) {
        runners[i].index = i;
        if (pthread_create(&runners[i].thread, NULL, run, &runners[i]) != 0)
            return 3;
    }
    double cpu_before_s = cpu_seconds(), from = clock_seconds();
    pthread_barrier_wait(&start);
    uint64_t operations = 0;
    for (unsigned i = 0; i < team.threads; i++) {
        pthread_join(runners[i].thread, NULL);
        operations += runners[i].operations;
    }
    double wall_s = clock_seconds() - from, cpu_s = cpu_seconds() - cpu_before_s;
    printf("{\"program\": \"speed\", \"case\": \"%s\", \"malloc_provider\": \"%s\", \"threads\": %u, "
           "\"operations\": %llu, \"wall_s\": %.6f, \"cpu_s\": %.6f, \"ns_per_operation\": %.3f, "
           "\"peak_rss_bytes\": %ld}\n",
           chosen->name, provider, team.threads, (unsigned long long)operations, wall_s, cpu_s,
           wall_s * 1e9 / (double)operations, peak_rss_bytes());
    return 0;
}
