/* A process whose heap is in a known state, for any allocator: regions CASE. Built by the tests, with the
 * allocator preloaded, linked in, or that of the C library.
 *
 * Says "ready" once it is there. Then a letter of input is a command:
 *   o      prints its own count: live blocks, their bytes as asked for, their usable bytes
 *   j      prints jemalloc's: allocated, active, metadata, retained, dirty, muzzy bytes, bytes in threads' caches
 *   m      prints mimalloc's: resident, committed bytes
 *   t      prints tcmalloc's: heap size, allocated, free in the page heap, unmapped, free in the central
 *          cache, in the transfer cache, in threads' caches
 *   b      allocates and frees for a moment, so that caches and decay move; prints 0
 * and the end of input ends it.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#pragma weak mallctl
#pragma weak _rjem_mallctl
#pragma weak je_mallctl
#pragma weak mi_process_info
#pragma weak MallocExtension_GetNumericProperty
int mallctl(const char *, void *, size_t *, void *, size_t);
int _rjem_mallctl(const char *, void *, size_t *, void *, size_t);
int je_mallctl(const char *, void *, size_t *, void *, size_t);
void mi_process_info(size_t *, size_t *, size_t *, size_t *, size_t *, size_t *, size_t *, size_t *);
int MallocExtension_GetNumericProperty(const char *, size_t *);

static uint64_t state = 88172645463325252u;

static uint64_t draw(uint64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}

/* The blocks that live, in memory that is not malloc's. */
struct block {
    void *at;
    size_t asked;
};
static struct block *blocks;
static size_t count;
static const size_t room = 1 << 20;

static void allocate(size_t bytes)
{
    if (count == room)
        abort();
    blocks[count].at = malloc(bytes);
    if (!blocks[count].at)
        abort();
    memset(blocks[count].at, 0x5a, bytes);
    blocks[count++].asked = bytes;
}

/* Frees all blocks from `from` on but one in `keep` (0: none stays). */
static void release(size_t from, unsigned keep)
{
    size_t left = from;
    for (size_t i = from; i < count; i++) {
        if (keep && draw(keep) == 0)
            blocks[left++] = blocks[i];
        else
            free(blocks[i].at);
    }
    count = left;
}

static void fill(size_t total, size_t least, size_t most)
{
    for (size_t sum = 0; sum < total;) {
        size_t bytes = least + draw(most - least + 1);
        allocate(bytes);
        sum += bytes;
    }
}

static pthread_barrier_t done;

/* A thread that frees most of what it took and stays: its cache keeps some of it. */
static void *worker(void *unused)
{
    void *mine[2000];
    for (int i = 0; i < 2000; i++) {
        mine[i] = malloc(16 + i % 500);
        if (!mine[i])
            abort();
        memset(mine[i], 1, 16);
    }
    for (int i = 0; i < 2000; i++)
        free(mine[i]);
    pthread_barrier_wait(&done);
    pause();
    return unused;
}

static void *taker(void *unused)
{
    fill(20 << 20, 500, 2000);
    pthread_barrier_wait(&done);
    pause();
    return unused;
}

static void threads(unsigned number)
{
    pthread_barrier_init(&done, NULL, number + 1);
    for (unsigned i = 0; i < number; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, worker, NULL);
    }
    pthread_barrier_wait(&done);
}

static size_t ctl(const char *name)
{
    size_t value = 0, len = sizeof value;
    int (*call)(const char *, void *, size_t *, void *, size_t) =
        mallctl ? mallctl : je_mallctl ? je_mallctl : _rjem_mallctl;
    if (!call || call(name, &value, &len, NULL, 0))
        return 0;
    return value;
}

static void say_jemalloc(void)
{
    uint64_t epoch = 1;
    size_t len = sizeof epoch;
    int (*call)(const char *, void *, size_t *, void *, size_t) =
        mallctl ? mallctl : je_mallctl ? je_mallctl : _rjem_mallctl;
    call("epoch", &epoch, &len, &epoch, sizeof epoch);
    size_t page = 4096;
    printf("%zu %zu %zu %zu %zu %zu %zu\n", ctl("stats.allocated"), ctl("stats.active"),
           ctl("stats.metadata"), ctl("stats.retained"), ctl("stats.arenas.4096.pdirty") * page,
           ctl("stats.arenas.4096.pmuzzy") * page, ctl("stats.arenas.4096.tcache_bytes"));
}

static void say_mimalloc(void)
{
    size_t resident = 0, committed = 0;
    mi_process_info(NULL, NULL, NULL, &resident, NULL, &committed, NULL, NULL);
    printf("%zu %zu\n", resident, committed);
}

static size_t property(const char *name)
{
    size_t value = 0;
    if (!MallocExtension_GetNumericProperty(name, &value))
        return 0;
    return value;
}

static void say_tcmalloc(void)
{
    printf("%zu %zu %zu %zu %zu %zu %zu\n", property("generic.heap_size"),
           property("generic.current_allocated_bytes"),
           property("tcmalloc.pageheap_free_bytes"), property("tcmalloc.pageheap_unmapped_bytes"),
           property("tcmalloc.central_cache_free_bytes"),
           property("tcmalloc.transfer_cache_free_bytes"),
           property("tcmalloc.thread_cache_free_bytes"));
}

static void say_own(void)
{
    size_t asked = 0, usable = 0;
    for (size_t i = 0; i < count; i++) {
        asked += blocks[i].asked;
        usable += malloc_usable_size(blocks[i].at);
    }
    printf("%zu %zu %zu\n", count, asked, usable);
}

int main(int argc, char **argv)
{
    static char buffer[4096];
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    const char *name = argc > 1 ? argv[1] : "";
    blocks = mmap(NULL, room * sizeof *blocks, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const size_t mib = 1 << 20;
    if (!strcmp(name, "live")) {
        fill(40 * mib, 16, 2000);
        fill(40 * mib, 20000, 900000);
    } else if (!strcmp(name, "burst")) {
        fill(10 * mib, 16, 2000);
        size_t before = count;
        fill(80 * mib, 16, 60000);
        release(before, 0);
    } else if (!strcmp(name, "survivors")) {
        fill(80 * mib, 16, 1000);
        release(0, 10);
    } else if (!strcmp(name, "threads")) {
        fill(8 * mib, 16, 2000);
        threads(8);
    } else if (!strcmp(name, "freed_elsewhere")) {
        /* The thread that took the blocks never asks again, and another one frees them. */
        pthread_t thread;
        pthread_barrier_init(&done, NULL, 2);
        pthread_create(&thread, NULL, taker, NULL);
        pthread_barrier_wait(&done);
        release(0, 0);
    } else if (!strcmp(name, "fork")) {
        /* The parent waits; the child has what a fork leaves of it. */
        fill(40 * mib, 16, 60000);
        if (fork()) pause();
        printf("%d\n", (int)getpid());
        release(0, 0);
    } else if (strcmp(name, "small")) {
        fprintf(stderr, "regions: no case \"%s\"\n", name);
        return 64;
    }
    puts("ready");
    fflush(stdout);
    for (char command; read(0, &command, 1) == 1;) {
        switch (command) {
        case 'o': say_own(); break;
        case 'j': say_jemalloc(); break;
        case 'm': say_mimalloc(); break;
        case 't': say_tcmalloc(); break;
        case 'b':
            for (int i = 0; i < 1000; i++)
                free(malloc(16 + i));
            puts("0");
            break;
        default: continue;
        }
        fflush(stdout);
    }
    return 0;
}
