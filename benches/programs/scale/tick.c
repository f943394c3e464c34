/* tick: what the allocator's own threads cost against the size of the heap.
 *
 *   tick HEAP_MIB CHURN_MIB_A_SECOND SECONDS
 *
 * One thread builds a heap of objects of 16 B to 16 KiB, rests (idle: no request at all),
 * then replaces objects at random at a constant rate, a hundred times a second. The rate
 * is the same for every heap, so what grows is the heap's share of the allocator's work. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "random.h"
#include "report.h"
#include "scale/cost.h"

struct object {
    char *at;
    size_t size_bytes;
};

static size_t replace(struct object *object, struct random_state *random)
{
    free(object->at);
    object->size_bytes = random_log_uniform(random, 16, 16 << 10);
    object->at = malloc(object->size_bytes);
    if (!object->at) {
        fprintf(stderr, "tick: no memory\n");
        _Exit(3);
    }
    memset(object->at, 1, object->size_bytes);
    return object->size_bytes;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: tick HEAP_MIB CHURN_MIB_A_SECOND SECONDS\n");
        return 64;
    }
    size_t heap_bytes = (size_t)(atof(argv[1]) * 0x1p20), built_bytes = 0, objects = 0;
    double churn_bytes_s = atof(argv[2]) * 0x1p20, seconds = atof(argv[3]);
    const char *provider = malloc_provider();
    struct random_state random = random_seeded(1);
    /* The mean size is above 512 bytes, so the table is never full. */
    size_t table_bytes = heap_bytes / 512 * sizeof(struct object) + 4096;
    struct object *table = mmap(NULL, table_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (table == MAP_FAILED)
        return 3;
    double from = clock_seconds();
    while (built_bytes < heap_bytes)
        built_bytes += replace(&table[objects++], &random);
    double build_s = clock_seconds() - from;

    /* The after-effects of building are over after three seconds; then nothing happens. */
    sleep_until(clock_seconds() + 3);
    struct cost before = cost_read();
    sleep_until(clock_seconds() + 2);
    struct cost after = cost_read();
    double idle_cpu_s = after.process_cpu_s - before.process_cpu_s - (after.own_cpu_s - before.own_cpu_s);
    long idle_sleeps = after.other_sleeps - before.other_sleeps;

    before = cost_read();
    from = clock_seconds();
    for (int step = 1; step <= seconds * 100; step++) {
        for (double left = churn_bytes_s / 100; left > 0;) {
            struct object *object = &table[random_below(&random, (uint32_t)objects)];
            left -= (double)replace(object, &random);
        }
        sleep_until(from + step * 0.01);
    }
    double wall_s = clock_seconds() - from;
    after = cost_read();
    double own_cpu_s = after.own_cpu_s - before.own_cpu_s;
    printf("{\"program\": \"tick\", \"malloc_provider\": \"%s\", \"heap_bytes\": %zu, \"objects\": %zu, \"build_s\": %.3f, "
           "\"idle_allocator_cpu_s\": %.6f, \"idle_wakeups\": %ld, \"wall_s\": %.3f, \"own_cpu_s\": %.6f, "
           "\"allocator_cpu_s\": %.6f, \"faults\": %ld, \"peak_rss_bytes\": %ld}\n",
           provider, built_bytes, objects, build_s, idle_cpu_s, idle_sleeps, wall_s, own_cpu_s,
           after.process_cpu_s - before.process_cpu_s - own_cpu_s, after.faults - before.faults, peak_rss_bytes());
    return 0;
}
