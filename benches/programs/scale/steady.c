/* steady: a server at a constant rate, to see what returning memory costs under load.
 *
 *   steady REQUESTS_A_SECOND SECONDS        rate 0: as fast as two threads can
 *
 * A request allocates some 300 objects of 32 B to 8 KiB and one buffer of 64 KiB to 1 MiB, writes
 * them, works, replaces one of 5000 sessions of a kibibyte, and frees all in random order.
 * The first two seconds are warm-up and do not count. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"
#include "report.h"
#include "scale/cost.h"

enum { THREADS = 2, OBJECTS = 300, SESSIONS = 5000 };
static const double WARM_UP_S = 2;

static double rate_s, from_s, until_s;

struct server {
    pthread_t thread;
    unsigned index;
    double cpu_s, latency_s; /* after the warm-up */
    long requests;
};

static char *filled(size_t size_bytes)
{
    char *at = malloc(size_bytes);
    if (!at) {
        fprintf(stderr, "steady: no memory\n");
        _Exit(3);
    }
    memset(at, 1, size_bytes);
    return at;
}

static void serve(char **session, struct random_state *random)
{
    char *object[OBJECTS];
    for (int i = 0; i < OBJECTS; i++)
        object[i] = filled(random_log_uniform(random, 32, 8 << 10));
    char *buffer = filled(random_log_uniform(random, 64 << 10, 1 << 20));
    volatile uint64_t sum = 0;
    for (int i = 0; i < 100000; i++)
        sum += (uint64_t)buffer[i % (64 << 10)];
    char **replaced = &session[random_below(random, SESSIONS)];
    free(*replaced);
    *replaced = filled(512 + random_below(random, 1024));
    for (uint32_t left = OBJECTS; left > 0; left--) {
        uint32_t chosen = random_below(random, left);
        free(object[chosen]);
        object[chosen] = object[left - 1];
    }
    free(buffer);
}

static void *run(void *argument)
{
    struct server *server = argument;
    struct random_state random = random_seeded(server->index + 1);
    char **session = calloc(SESSIONS, sizeof *session);
    if (!session)
        abort();
    double cpu_from_s = -1;
    for (long turn = 0;; turn++) {
        double due = rate_s > 0 ? from_s + ((double)turn + (double)server->index / THREADS) * THREADS / rate_s : clock_seconds();
        if (rate_s > 0)
            sleep_until(due);
        double now = clock_seconds();
        if (now >= until_s)
            break;
        if (cpu_from_s < 0 && now >= from_s + WARM_UP_S)
            cpu_from_s = cost_clock(CLOCK_THREAD_CPUTIME_ID);
        serve(session, &random);
        if (cpu_from_s >= 0) {
            server->requests++;
            server->latency_s += clock_seconds() - due;
        }
    }
    server->cpu_s = cost_clock(CLOCK_THREAD_CPUTIME_ID) - cpu_from_s;
    sleep_until(until_s + 0.2); /* the end is read before sessions go */
    for (int i = 0; i < SESSIONS; i++)
        free(session[i]);
    free(session);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 3 || atof(argv[2]) <= 0) {
        fprintf(stderr, "usage: steady REQUESTS_A_SECOND SECONDS\n");
        return 64;
    }
    const char *provider = malloc_provider();
    rate_s = atof(argv[1]);
    from_s = clock_seconds();
    until_s = from_s + WARM_UP_S + atof(argv[2]);
    static struct server servers[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        servers[i].index = i;
        if (pthread_create(&servers[i].thread, NULL, run, &servers[i]) != 0)
            return 3;
    }
    sleep_until(from_s + WARM_UP_S);
    struct cost before = cost_read();
    sleep_until(until_s + 0.1);
    struct cost after = cost_read();
    double servers_cpu_s = 0, latency_s = 0;
    long requests = 0;
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(servers[i].thread, NULL);
        servers_cpu_s += servers[i].cpu_s;
        latency_s += servers[i].latency_s;
        requests += servers[i].requests;
    }
    double process_cpu_s = after.process_cpu_s - before.process_cpu_s;
    double allocator_cpu_s = process_cpu_s - servers_cpu_s - (after.own_cpu_s - before.own_cpu_s);
    printf("{\"program\": \"steady\", \"malloc_provider\": \"%s\", \"rate\": %.0f, \"seconds\": %.1f, \"requests\": %ld, "
           "\"process_cpu_s\": %.6f, \"allocator_cpu_s\": %.6f, \"cpu_s_a_request\": %.9f, \"latency_s_a_request\": %.9f, "
           "\"faults\": %ld, \"peak_rss_bytes\": %ld}\n",
           provider, rate_s, until_s - from_s - WARM_UP_S, requests, process_cpu_s, allocator_cpu_s,
           process_cpu_s / (double)(requests ? requests : 1), latency_s / (double)(requests ? requests : 1),
           after.faults - before.faults, peak_rss_bytes());
    return 0;
}
