/* A process whose heap is in a known state: heap CASE. Built by the tests, for each glibc.
 *
 * Says "ready" once it is there. Then a letter of input is a command:
 *   i      prints mallinfo2's figures: arena, in use, free, fastbins, mapped chunks, their bytes
 *   t      calls malloc_trim(0), prints resident KiB before and after
 *   r      prints resident KiB
 *   l      prints the slowest ten requests since the last time, in nanoseconds (gigabyte_beating)
 * and the end of input ends it.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#if __GLIBC_PREREQ(2, 33)
extern struct mallinfo2 mallinfo2(void) __attribute__((weak));
#endif

static uint64_t state = 88172645463325252u;

static uint64_t draw(uint64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}

static void *filled(size_t bytes)
{
    char *block = malloc(bytes);
    if (!block)
        abort();
    memset(block, 0x5a, bytes);
    return block;
}

static void *untouched(size_t bytes)
{
    void *block = malloc(bytes);
    if (!block)
        abort();
    return block;
}

/* Allocates `total` bytes in blocks of `least` to `most` and frees all but one in `keep` (0: none). */
static void burst(size_t total, size_t least, size_t most, unsigned keep)
{
    size_t room = total / least + 1, count = 0;
    void **blocks = mmap(NULL, room * sizeof *blocks, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t sum = 0; sum < total && count < room; count++) {
        size_t bytes = least + draw(most - least + 1);
        blocks[count] = filled(bytes);
        sum += bytes;
    }
    for (size_t i = 0; i < count; i++)
        if (!keep || draw(keep))
            free(blocks[i]);
    munmap(blocks, room * sizeof *blocks);
}

static pthread_barrier_t done;
static atomic_int go_on = 1;

struct job {
    size_t total, least, most;
    unsigned keep;
    int stays;
};

static void *worker(void *argument)
{
    struct job job = *(struct job *)argument;
    burst(job.total, job.least, job.most, job.keep);
    pthread_barrier_wait(&done);
    if (job.stays)
        pause();
    return NULL;
}

static void in_threads(int threads, struct job job)
{
    static struct job kept;
    kept = job;
    pthread_t ids[64];
    pthread_barrier_init(&done, NULL, threads + 1);
    for (int i = 0; i < threads; i++)
        pthread_create(&ids[i], NULL, worker, &kept);
    pthread_barrier_wait(&done);
    if (!job.stays)
        for (int i = 0; i < threads; i++)
            pthread_join(ids[i], NULL);
}

/* Allocates and frees for ever, with about `argument` blocks alive. */
static void *churn(void *argument)
{
    enum { SLOTS = 20000 };
    void **slots = calloc(SLOTS, sizeof *slots);
    uint64_t own = (uintptr_t)argument * 2654435761u + 1;
    while (go_on) {
        own ^= own << 13;
        own ^= own >> 7;
        own ^= own << 17;
        size_t slot = own % SLOTS;
        free(slots[slot]);
        size_t bytes = 16 + (own >> 20) % (own % 50 ? 1000 : 60000);
        slots[slot] = malloc(bytes);
        memset(slots[slot], 1, bytes);
    }
    return NULL;
}

static atomic_long slowest_ns;

/* Allocates and frees every 200 microseconds and notes the slowest time that took. */
static void *beat(void *unused)
{
    struct timespec pause = {0, 200000}, from, to;
    while (go_on) {
        clock_gettime(CLOCK_MONOTONIC, &from);
        for (int i = 0; i < 10; i++)
            free(filled(100 + draw(20000)));
        clock_gettime(CLOCK_MONOTONIC, &to);
        long took = (to.tv_sec - from.tv_sec) * 1000000000 + to.tv_nsec - from.tv_nsec;
        if (took > slowest_ns)
            slowest_ns = took;
        nanosleep(&pause, NULL);
    }
    return unused;
}

static void prepare(const char *name)
{
    if (!strcmp(name, "fresh")) {
        return;
    } else if (!strcmp(name, "live")) {
        for (int i = 0; i < 100000; i++)
            filled(16 + draw(2000));
    } else if (!strcmp(name, "burst")) {
        burst(200 << 20, 16, 4000, 0);
        filled(100);
    } else if (!strcmp(name, "kept_end")) {
        burst(200 << 20, 16, 4000, 1000);
    } else if (!strcmp(name, "pinned_1_percent")) {
        burst(100 << 20, 64, 64, 100);
    } else if (!strcmp(name, "pinned_10_percent")) {
        burst(100 << 20, 1024, 1024, 10);
    } else if (!strcmp(name, "pinned_30k")) {
        burst(200 << 20, 30000, 30000, 10);
    } else if (!strcmp(name, "threads_4")) {
        in_threads(4, (struct job){40 << 20, 16, 4000, 100, 1});
    } else if (!strcmp(name, "threads_32")) {
        in_threads(32, (struct job){8 << 20, 16, 4000, 100, 1});
    } else if (!strcmp(name, "threads_gone")) {
        in_threads(8, (struct job){20 << 20, 16, 40000, 20, 0});
    } else if (!strcmp(name, "secondary_tops")) {
        /* Raises both dynamic thresholds: the ends of arenas are not returned after that. */
        free(filled(30 << 20));
        in_threads(4, (struct job){51 << 20, 500, 60000, 0, 1});
    } else if (!strcmp(name, "many_heaps")) {
        in_threads(2, (struct job){150 << 20, 500, 5000, 50, 1});
    } else if (!strcmp(name, "fastbins")) {
        burst(20 << 20, 16, 100, 3);
        in_threads(3, (struct job){5 << 20, 16, 100, 2, 1});
    } else if (!strcmp(name, "mmapped")) {
        for (int i = 0; i < 20; i++)
            filled((1 << 20) + draw(1 << 20));
        void *block;
        if (posix_memalign(&block, 64, 3 << 20) || posix_memalign(&block, 4096, 2 << 20) ||
            posix_memalign(&block, 1 << 16, 2 << 20))
            abort();
        untouched(40 << 20);
    } else if (!strcmp(name, "locked_part")) {
        /* Freed pages of the locked part stay. */
        void *blocks[400];
        for (int i = 0; i < 400; i++)
            blocks[i] = filled(30000);
        filled(100);
        if (mlock(blocks[200], 100 * 30000))
            abort();
        for (int i = 0; i < 400; i++)
            free(blocks[i]);
    } else if (!strcmp(name, "mmapped_split")) {
        /* Advice, locks and rights for a part of a block: the kernel splits its mapping. */
        for (int i = 0; i < 6; i++) {
            char *block = filled(5 << 20);
            char *page = (char *)(((uintptr_t)block + 4095) & ~4095ul);
            madvise(page, 4 << 20, MADV_HUGEPAGE);
            block = filled((2 << 20) + draw(1 << 20));
            if (mlock(block + (1 << 20), 64 << 10))
                abort();
            page = (char *)(((uintptr_t)filled(3 << 20) + 4095) & ~4095ul);
            madvise(page + (1 << 20), 1 << 20, MADV_DONTDUMP);
            page = (char *)(((uintptr_t)filled(3 << 20) + 4095) & ~4095ul);
            mprotect(page + (1 << 20), 1 << 20, PROT_READ);
        }
    } else if (!strcmp(name, "untouched")) {
        free(filled(30 << 20));
        for (int i = 0; i < 4; i++)
            untouched(20 << 20);
        free(untouched(20 << 20));
        filled(100);
    } else if (!strcmp(name, "returned")) {
        burst(200 << 20, 16, 40000, 200);
        malloc_trim(0);
        burst(20 << 20, 16, 40000, 20);
    } else if (!strcmp(name, "foreign_brk")) {
        burst(20 << 20, 16, 4000, 10);
        memset(sbrk(100000), 0x77, 100000);
        burst(20 << 20, 16, 4000, 10);
        if (sbrk(48) == (void *)-1)
            abort();
        burst(20 << 20, 16, 4000, 10);
    } else if (!strcmp(name, "brk_at_end")) {
        burst(20 << 20, 16, 4000, 0);
        memset(sbrk(4096), 0x77, 4096);
    } else if (!strcmp(name, "blocked_brk")) {
        burst(20 << 20, 16, 4000, 10);
        mmap((char *)sbrk(0) + (1 << 20), 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
             -1, 0);
        burst(60 << 20, 16, 4000, 10);
    } else if (!strcmp(name, "aligned")) {
        void *blocks[2000];
        for (int i = 0; i < 2000; i++)
            if (posix_memalign(&blocks[i], 64 << draw(8), 1 + draw(9000)))
                abort();
        for (int i = 0; i < 2000; i++)
            if (draw(3))
                free(blocks[i]);
    } else if (!strcmp(name, "cached")) {
        void *blocks[5];
        for (int i = 0; i < 5; i++)
            blocks[i] = filled(200);
        filled(200);
        for (int i = 0; i < 5; i++)
            free(blocks[i]);
    } else if (!strcmp(name, "wide")) {
        /* 30 GB of address space, and 5000 mappings: no two neighbours have the same rights. */
        char *pages = mmap(NULL, (size_t)30 << 30, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        for (int i = 0; i < 5000; i += 2)
            mprotect(pages + i * 4096, 4096, PROT_READ);
        burst(5 << 20, 16, 4000, 10);
    } else if (!strcmp(name, "vast")) {
        /* 4 TiB of address space with 1000 touched pages: at the ends, single ones, a run over a border of 1 GiB. */
        size_t bytes = (size_t)1 << 42;
        char *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (pages == MAP_FAILED)
            abort();
        madvise(pages, bytes, MADV_NOHUGEPAGE);
        pages[0] = pages[bytes - 1] = 1;
        for (size_t i = 1; i <= 98; i++)
            pages[i * (bytes / 100)] = 1;
        char *border = (char *)(((uintptr_t)pages + bytes / 2 + (1 << 30)) & -((uintptr_t)1 << 30));
        memset(border - 450 * 4096, 1, 900 * 4096);
        burst(5 << 20, 16, 4000, 10);
    } else if (!strcmp(name, "closed")) {
        prctl(PR_SET_DUMPABLE, 0);
    } else if (!strcmp(name, "large_caches")) {
        /* Blocks above 1 KiB lie in threads' caches since 2.42, if these are allowed to. */
        for (int i = 0; i < 6; i++) {
            void *blocks[6];
            for (int j = 0; j < 6; j++)
                blocks[j] = filled(2000 << i);
            for (int j = 0; j < 6; j++)
                free(blocks[j]);
        }
        burst(5 << 20, 16, 4000, 10);
    } else if (!strcmp(name, "gigabyte")) {
        burst((size_t)1 << 30, 16, 4000, 2);
    } else if (!strcmp(name, "gigabyte_beating")) {
        burst((size_t)1 << 30, 16, 4000, 2);
        pthread_t id;
        pthread_create(&id, NULL, beat, NULL);
    } else if (!strcmp(name, "busy")) {
        pthread_t id;
        for (uintptr_t i = 0; i < 2; i++)
            pthread_create(&id, NULL, churn, (void *)(i + 1));
        for (int i = 0; i < 60000; i++)
            filled(16 + draw(2000));
        sleep(1);
    } else {
        fprintf(stderr, "no case %s\n", name);
        exit(64);
    }
}

/* Counted by the kernel page by page; the figure in statm is approximate on several processors. */
static long resident_kib(void)
{
    char text[2000] = "";
    int rollup = open("/proc/self/smaps_rollup", O_RDONLY);
    if (read(rollup, text, sizeof text - 1) < 0)
        abort();
    close(rollup);
    return atol(strstr(text, "Rss:") + 4);
}

/* Without stdio: it would allocate. */
static void say(const char *format, ...)
{
    char text[300];
    __builtin_va_list arguments;
    __builtin_va_start(arguments, format);
    int len = vsnprintf(text, sizeof text, format, arguments);
    __builtin_va_end(arguments);
    if (write(1, text, len) != len)
        abort();
}

static void info(void)
{
#if __GLIBC_PREREQ(2, 33)
    if (mallinfo2) {
        struct mallinfo2 m = mallinfo2();
        say("%zu %zu %zu %zu %zu %zu\n", m.arena, m.uordblks, m.fordblks, m.fsmblks, m.hblks,
            m.hblkhd);
        return;
    }
#endif
    struct mallinfo m = mallinfo(); /* Of 32 bits, and all there is before 2.33. */
    say("%u %u %u %u %u %u\n", m.arena, m.uordblks, m.fordblks, m.fsmblks, m.hblks, m.hblkhd);
}

int main(int argc, char **argv)
{
    prepare(argc > 1 ? argv[1] : "fresh");
    resident_kib(); /* So that no later call is the first of its kind. */
    say("ready\n");
    char command;
    while (read(0, &command, 1) == 1) {
        if (command == 'i') {
            info();
        } else if (command == 'r') {
            say("%ld\n", resident_kib());
        } else if (command == 'l') {
            say("%ld\n", atomic_exchange(&slowest_ns, 0));
        } else if (command == 't') {
            long before = resident_kib();
            malloc_trim(0);
            say("%ld %ld\n", before, resident_kib());
        }
    }
    _exit(0);
}
