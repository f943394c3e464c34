/* prefork: proportional memory of a parent and its forked workers, as servers that load
 * an application once and fork have it.
 *
 *   prefork HEAP_MIB WORKERS WORK_MIB
 *
 * The parent builds a heap of objects of 16 B to 1 KiB and frees a third of them at random;
 * after a rest it forks. Each worker allocates WORK_MIB of the same sizes, writes them, and
 * frees them. Memory is the sum of Pss over all processes, read while the workers hold
 * their work and again after a rest; `needed` is what the objects alone would take, with the
 * parent's counted once. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "random.h"
#include "report.h"
#include "scale/cost.h"

enum { WORKERS_MOST = 64 };

struct object {
    char *at;
    size_t size_bytes;
};

struct heap {
    struct object *objects;
    size_t count, bytes;
};

static struct heap build(size_t wanted_bytes, struct random_state *random)
{
    struct heap heap = {0};
    size_t table_bytes = (wanted_bytes / 16 + 1) * sizeof *heap.objects;
    heap.objects = mmap(NULL, table_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (heap.objects == MAP_FAILED)
        _exit(3);
    while (heap.bytes < wanted_bytes) {
        size_t size_bytes = random_log_uniform(random, 16, 1024);
        char *at = malloc(size_bytes);
        if (!at)
            _exit(3);
        memset(at, 1, size_bytes);
        heap.objects[heap.count++] = (struct object){at, size_bytes};
        heap.bytes += size_bytes;
    }
    return heap;
}

/* Through a buffer of its own: stdio would allocate in the process that is measured. */
static long pss_bytes(pid_t pid)
{
    char path[64], text[8192];
    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (file >= 0)
        close(file);
    text[length > 0 ? length : 0] = '\0';
    const char *field = strstr(text, "\nPss:");
    if (!field)
        _exit(3);
    return strtol(field + 5, NULL, 10) * 1024;
}

static long sum_pss(const pid_t *workers, int count)
{
    long sum = pss_bytes(getpid());
    for (int i = 0; i < count; i++)
        sum += pss_bytes(workers[i]);
    return sum;
}

static void work(size_t work_bytes, int index, int ready, int go)
{
    struct random_state random = random_seeded(100 + (uint64_t)index);
    char byte = 0;
    struct heap mine = build(work_bytes, &random);
    if (write(ready, &byte, 1) != 1 || read(go, &byte, 1) != 1)
        _exit(3);
    for (size_t i = 0; i < mine.count; i++)
        free(mine.objects[i].at);
    munmap(mine.objects, (work_bytes / 16 + 1) * sizeof *mine.objects);
    if (write(ready, &byte, 1) != 1)
        _exit(3);
    for (;;)
        pause();
}

int main(int argc, char **argv)
{
    int count = argc == 4 ? atoi(argv[2]) : 0;
    if (count < 1 || count > WORKERS_MOST) {
        fprintf(stderr, "usage: prefork HEAP_MIB WORKERS WORK_MIB\n");
        return 64;
    }
    size_t work_bytes = (size_t)(atof(argv[3]) * 0x1p20), freed_bytes = 0;
    const char *provider = malloc_provider();
    struct random_state random = random_seeded(1);
    struct heap heap = build((size_t)(atof(argv[1]) * 0x1p20), &random);
    for (size_t i = 0; i < heap.count; i++)
        if (random_below(&random, 3) == 0) {
            freed_bytes += heap.objects[i].size_bytes;
            free(heap.objects[i].at);
        }
    size_t live_bytes = heap.bytes - freed_bytes;
    sleep_until(clock_seconds() + 3);

    int ready[2], go[2];
    pid_t workers[WORKERS_MOST];
    char bytes[WORKERS_MOST] = {0};
    if (pipe(ready) != 0 || pipe(go) != 0)
        return 3;
    for (int i = 0; i < count; i++) {
        workers[i] = fork();
        if (workers[i] < 0)
            return 3;
        if (workers[i] == 0)
            work(work_bytes, i, ready[1], go[0]);
    }
    for (int i = 0; i < count; i++)
        if (read(ready[0], bytes, 1) != 1)
            return 3;
    long held = sum_pss(workers, count);
    if (write(go[1], bytes, (size_t)count) != count)
        return 3;
    for (int i = 0; i < count; i++)
        if (read(ready[0], bytes, 1) != 1)
            return 3;
    sleep_until(clock_seconds() + 3);
    long rested = sum_pss(workers, count);
    for (int i = 0; i < count; i++) {
        kill(workers[i], SIGKILL);
        waitpid(workers[i], NULL, 0);
    }
    printf("{\"program\": \"prefork\", \"malloc_provider\": \"%s\", \"workers\": %d, \"pss_held_bytes\": %ld, "
           "\"needed_held_bytes\": %zu, \"pss_rested_bytes\": %ld, \"needed_rested_bytes\": %zu, \"peak_rss_bytes\": %ld}\n",
           provider, count, held, live_bytes + (size_t)count * work_bytes, rested, live_bytes, peak_rss_bytes());
    return 0;
}
