/*
 * A process in a known state: held OP...
 *
 * The operations run in order; then one line of JSON says what is true, measured from inside:
 * `live`   bytes of blocks that are not freed, with glibc's headers, as far as they were written;
 * `held`   anonymous memory beyond the live blocks, the program's own mappings and what the process began with;
 * `other`  what the program mapped itself;  `own` the allocator's own count of live bytes, -1 without one.
 * Then it waits. On stdin: t makes the allocator return what it can, and prints the RSS before and after.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

#include "account.h"

static long base;
static int children;
static pid_t pids[64];

static void *touch(void *argument)
{
    size_t bytes = (size_t)argument;
    volatile char *stack = __builtin_alloca(bytes);
    for (size_t at = 0; at < bytes; at += 4096)
        stack[at] = 1;
    pthread_barrier_wait(&there);
    for (;;)
        pause();
}

static void stacks(unsigned count, size_t bytes)
{
    pthread_t id;
    pthread_barrier_init(&there, NULL, count + 1);
    for (unsigned i = 0; i < count; i++)
        check(pthread_create(&id, NULL, touch, (void *)bytes) == 0, "pthread_create");
    pthread_barrier_wait(&there);
    other += (long)(count * bytes);
}

/* Anonymous memory of a process, by PSS where it is one of several. */
static long anonymous(pid_t pid, const char *field)
{
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", pid);
    FILE *file = fopen(path, "r");
    long kb = 0;
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, field, strlen(field)) == 0)
            kb = atol(line + strlen(field));
    if (file)
        fclose(file);
    return kb * 1024;
}

static void *map(size_t bytes, int flags, int file)
{
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, file, 0);
    check(memory != MAP_FAILED, "mmap");
    for (size_t at = 0; at < bytes; at += 4096)
        memory[at] = 1;
    return memory;
}

static int file_of(const char *path, size_t bytes)
{
    static char text[65536];
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    check(file >= 0, path);
    memset(text, 7, sizeof text);
    for (size_t at = 0; at < bytes; at += sizeof text)
        check(write(file, text, sizeof text) == sizeof text, path);
    fsync(file);
    unlink(path);
    return file;
}

/* Every large block's mapping is split as numpy, mlock and MADV_DONTDUMP split it. */
static void split(const char *how)
{
    for (struct block *block = own.first; block; block = block->next) {
        char *second = (char *)(((uintptr_t)block + 4096) & -4096ul);
        if (malloc_usable_size(block) < MB)
            continue;
        size_t bytes = (malloc_usable_size(block) - 8192) & -4096ul;
        int failed = 0;
        if (strcmp(how, "huge") == 0)
            failed = madvise(second, bytes, MADV_HUGEPAGE);
        else if (strcmp(how, "nohuge") == 0)
            failed = madvise(second, bytes, MADV_NOHUGEPAGE);
        else if (strcmp(how, "dump") == 0)
            failed = madvise(second + (bytes / 2 & -4096ul), bytes / 4 & -4096ul, MADV_DONTDUMP);
        else if (strcmp(how, "fork") == 0)
            failed = madvise(second, bytes / 2 & -4096ul, MADV_DONTFORK);
        else if (strcmp(how, "readonly") == 0)
            failed = mprotect(second + (bytes / 2 & -4096ul), 65536, PROT_READ);
        else
            failed = mlock(second, 65536);
        check(!failed, how);
    }
}

static void fork_children(int count, const char *what)
{
    for (int i = 0; i < count; i++) {
        int pipes[2];
        char byte;
        check(pipe(pipes) == 0, "pipe");
        pid_t pid = fork();
        if (pid == 0) {
            if (strcmp(what, "touch") == 0)
                for (struct block *block = own.first; block; block = block->next)
                    memset(block + 1, 0x33, malloc_usable_size(block) - sizeof *block);
            else if (strcmp(what, "free") == 0)
                release(&own, 100);
            else if (strcmp(what, "more") == 0)
                fill(&own, 100, 3000, 30 * MB, 1);
            check(write(pipes[1], "x", 1) == 1, "pipe");
            for (;;)
                pause();
        }
        check(read(pipes[0], &byte, 1) == 1, "a child");
        pids[children++] = pid;
    }
    if (strcmp(what, "touch") == 0)
        live *= count + 1;
    if (strcmp(what, "more") == 0)
        live += count * 30 * (long)MB;
}

static long count_of_allocator(void)
{
    long value = -1;
    uint64_t epoch = 1;
    size_t size = sizeof epoch, bytes = 0;
    int (*mallctl)(const char *, void *, size_t *, void *, size_t) = dlsym(RTLD_DEFAULT, "mallctl");
    int (*property)(const char *, size_t *) = dlsym(RTLD_DEFAULT, "MallocExtension_GetNumericProperty");
    if (mallctl) {
        mallctl("epoch", &epoch, &size, &epoch, sizeof epoch);
        size = sizeof bytes;
        if (mallctl("stats.allocated", &bytes, &size, NULL, 0) == 0)
            value = (long)bytes;
    } else if (property) {
        if (property("generic.current_allocated_bytes", &bytes))
            value = (long)bytes;
#ifdef __GLIBC__
    } else if (!dlsym(RTLD_DEFAULT, "mi_malloc")) {
        struct mallinfo2 info = mallinfo2();
        value = (long)(info.uordblks + info.hblkhd);
#endif
    }
    return value;
}

static void give_back(void)
{
    int (*mallctl)(const char *, void *, size_t *, void *, size_t) = dlsym(RTLD_DEFAULT, "mallctl");
    void (*release_all)(void) = dlsym(RTLD_DEFAULT, "MallocExtension_ReleaseFreeMemory");
    void (*collect)(int) = dlsym(RTLD_DEFAULT, "mi_collect");
    if (mallctl)
        mallctl("arena.4096.purge", NULL, NULL, NULL, 0);
    else if (release_all)
        release_all();
    else if (collect)
        collect(1);
#ifdef __GLIBC__
    else
        malloc_trim(0);
#endif
}

static void one(char *op)
{
    unsigned long n[6] = {0};
    char word[256] = "", *save, *name = strtok_r(op, ":", &save), *part;
    for (int i = 0; (part = strtok_r(NULL, ":", &save)) && i < 6;) {
        if (*part >= '0' && *part <= '9')
            n[i++] = strtoul(part, NULL, 10);
        else
            snprintf(word, sizeof word, "%s", part);
    }
    int is_private = strcmp(word, "private") == 0;
    int flags = is_private ? MAP_PRIVATE : MAP_SHARED;
#define IS(text) (strcmp(name, text) == 0)
    if (IS("a"))
        fill(&own, n[0], n[1], n[2] * MB, 1);
    else if (IS("c"))
        fill(&own, n[0], n[1], n[2] * MB, 0);
    else if (IS("aligned"))
        for (size_t sum = 0; sum < n[2] * MB; sum += n[1]) {
            void *memory = NULL;
            check(posix_memalign(&memory, n[0], n[1]) == 0, "posix_memalign");
            add(&own, memory, n[1], 1);
            /* glibc: a mapping of its own, whose first page and page in front of the block are written, too. */
            live += n[0] + n[1] > 131072 ? 8192 : 0;
        }
    else if (IS("grow")) {
        char *memory = NULL;
        for (size_t size = n[0] * MB; size <= n[1] * MB; size += n[0] * MB) {
            memory = realloc(memory, size);
            memset(memory, 1, size);
        }
        add(&own, memory, n[1] * MB, 1);
    } else if (IS("shrink")) {
        struct block *old = own.first, *next = old->next;
        live -= (long)size_of(old);
        own.first = next;
        add(&own, realloc(old, n[0] * MB), n[0] * MB, 1);
    } else if (IS("f"))
        release(&own, n[0]);
    else if (IS("runs"))
        release_in_runs(&own, n[0], n[1]);
    else if (IS("th"))
        threads((int)n[0], n[1], n[2], n[3] * MB, n[4], strcmp(word, "end") == 0);
    else if (IS("stacks"))
        stacks((unsigned)n[0], n[1] * 1000);
    else if (IS("mmap"))
        map(n[0] * MB, MAP_PRIVATE | MAP_ANONYMOUS, -1), other += (long)(n[0] * MB);
    else if (IS("pieces"))
        for (unsigned long i = 0; i < n[0]; i++)
            map(n[1] * 4096, MAP_PRIVATE | MAP_ANONYMOUS, -1), map(4096, MAP_SHARED | MAP_ANONYMOUS, -1),
                other += (long)(n[1] * 4096);
    else if (IS("shared"))
        map(n[0] * MB, MAP_SHARED | MAP_ANONYMOUS, -1);
    else if (IS("memfd")) {
        int file = memfd_create("held", 0);
        check(ftruncate(file, (off_t)(n[0] * MB)) == 0, "ftruncate");
        map(n[0] * MB, flags, file);
        other += is_private ? (long)(n[0] * MB) : 0;
    } else if (IS("file") || IS("shm")) {
        char path[64];
        snprintf(path, sizeof path, "%s/held-%d", IS("shm") ? "/dev/shm" : "/var/tmp", getpid());
        int file = file_of(path, n[0] * MB);
        if (strcmp(word, "read") == 0) {
            volatile char *memory = mmap(NULL, n[0] * MB, PROT_READ, MAP_SHARED, file, 0);
            for (size_t at = 0; at < n[0] * MB; at += 4096)
                (void)memory[at];
        } else if (strcmp(word, "written") != 0) {
            map(n[0] * MB, flags, file);
            other += is_private ? (long)(n[0] * MB) : 0;
        }
    } else if (IS("sysv")) {
        int id = shmget(IPC_PRIVATE, n[0] * MB, 0600);
        char *memory = shmat(id, NULL, 0);
        shmctl(id, IPC_RMID, NULL);
        memset(memory, 1, n[0] * MB);
    } else if (IS("sbrk")) {
        memset(sbrk((intptr_t)(n[0] * MB)), 1, n[0] * MB);
        other += (long)(n[0] * MB);
    } else if (IS("split"))
        split(word);
    else if (IS("lockall"))
        check(mlockall(MCL_CURRENT | MCL_FUTURE) == 0, "mlockall");
    else if (IS("trim"))
        give_back();
    else if (IS("fork"))
        fork_children((int)n[0], word);
    else if (IS("tick") || IS("churn")) {
        pthread_t id;
        pthread_create(&id, NULL, IS("tick") ? ticker : churner, (void *)(n[0] * MB));
        usleep(300000);
    } else if (IS("ext")) {
        void *library = dlopen(getenv("HELD_EXTENSION"), RTLD_NOW | RTLD_LOCAL);
        check(library != NULL, dlerror());
        long (*state)(long, long) = dlsym(library, "extension_state");
        live += state((long)n[0], (long)n[1]);
    } else if (IS("sleep"))
        usleep((useconds_t)n[0] * 1000);
#ifdef __GLIBC__
    else if (IS("mallopt"))
        mallopt(-(int)n[0], (int)n[1]);
#endif
    else
        check(0, name);
}

int main(int argc, char **argv)
{
    char *without = getenv("HELD_HEADER"), byte;
    unsigned long dies = 0;
    signal(SIGCHLD, SIG_IGN);
    if (without)
        header = strtoul(without, NULL, 10);
    base = anonymous(getpid(), "Anonymous:");
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "dies:", 5) == 0)
            dies = strtoul(argv[i] + 5, NULL, 10);
        else
            one(argv[i]);
    }
    long now = children ? anonymous(getpid(), "Pss_Anon:") : anonymous(getpid(), "Anonymous:");
    for (int i = 0; i < children; i++)
        now += anonymous(pids[i], "Pss_Anon:");
    long held = now - base - live - other;
    printf("{\"live\": %ld, \"held\": %ld, \"other\": %ld, \"own\": %ld}\n", live, held < 0 ? 0 : held, other,
           count_of_allocator());
    fflush(stdout);
    if (dies) {
        usleep((useconds_t)dies * 1000);
        return 0;
    }
    while (read(0, &byte, 1) > 0) {
        if (byte != 't')
            continue;
        long before = anonymous(getpid(), "Rss:");
        give_back();
        printf("{\"before\": %ld, \"after\": %ld}\n", before, anonymous(getpid(), "Rss:"));
        fflush(stdout);
    }
    for (int i = 0; i < children; i++)
        kill(pids[i], SIGKILL);
    return 0;
}
