/*
 * Blocks of held.c, and the account of their bytes: single ones, and those of threads that allocate and free.
 */
#ifndef ACCOUNT_H
#define ACCOUNT_H

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MB 1000000ul

/* Blocks are linked through their own bytes, so that the account takes no memory. */
struct block {
    struct block *next;
    uint32_t asked, is_large; /* of a large block: how many times 64 KiB */
};

struct list {
    struct block *first;
    unsigned long state;
};

static struct list own = {NULL, 88172645463325252ul};
/* What is true: bytes of live blocks, and of mappings of the program's own. */
static _Atomic long live, other;
static size_t header = 8;

static void check(int ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "held: %s: %s\n", what, strerror(errno));
        exit(1);
    }
}

static unsigned long draw(struct list *list, unsigned long below)
{
    list->state ^= list->state << 13;
    list->state ^= list->state >> 7;
    list->state ^= list->state << 17;
    return list->state % below;
}

static size_t size_of(struct block *block)
{
    size_t size = malloc_usable_size(block) + header;
#ifndef __GLIBC__
    /* musl's usable size is what was asked for; the block takes a slot of one of these, in units of 16 bytes. */
    static const unsigned short slots[] = {
        1,   2,   3,   4,   5,   6,   7,   8,   9,   10,  12,   15,   18,   20,   25,   31,   36,   42,   50,   63,   72,   84,   102,  127,
        146, 170, 204, 255, 292, 340, 409, 511, 584, 682, 818,  1023, 1169, 1364, 1637, 2047, 2340, 2730, 3276, 4095, 4680, 5460, 6552, 8191,
    };
    for (unsigned i = 0; i < sizeof slots / sizeof *slots; i++)
        if (size <= slots[i] * 16ul)
            return slots[i] * 16ul;
#endif
    return size;
}

static void add(struct list *list, void *memory, size_t asked, int write)
{
    check(memory != NULL, "no memory");
    if (write)
        memset(memory, 0x5a, malloc_usable_size(memory));
    struct block *block = memory;
    block->next = list->first;
    block->is_large = !write;
    block->asked = (uint32_t)(asked >> 4);
    list->first = block;
    live += write ? (long)size_of(block) : 4096;
}

static void drop(struct block *block)
{
    live -= block->is_large ? 4096 : (long)size_of(block);
    free(block);
}

static void fill(struct list *list, size_t least, size_t most, size_t total, int write)
{
    for (size_t sum = 0; sum < total;) {
        size_t asked = least + draw(list, most - least + 1);
        add(list, write ? malloc(asked) : calloc(1, asked), asked, write);
        sum += asked;
    }
}

/* Frees `part` in a hundred at random; with 100 all but the newest. */
static void release(struct list *list, unsigned long part)
{
    struct block **link = &list->first;
    if (part == 100 && *link)
        link = &(*link)->next;
    while (*link) {
        struct block *block = *link;
        if (part == 100 || draw(list, 100) < part) {
            *link = block->next;
            drop(block);
        } else {
            link = &block->next;
        }
    }
}

static void release_in_runs(struct list *list, unsigned long keep, unsigned long gone)
{
    struct block **link = &list->first;
    for (unsigned long i = 0; *link; i++) {
        struct block *block = *link;
        if (i % (keep + gone) >= keep) {
            *link = block->next;
            drop(block);
        } else {
            link = &block->next;
        }
    }
}

/* Threads that allocate, free a part, and stay or end. */
struct thread {
    size_t least, most, total;
    unsigned long part;
    int ends;
    struct list list;
};
static pthread_barrier_t there;

static void *work(void *argument)
{
    struct thread *thread = argument;
    fill(&thread->list, thread->least, thread->most, thread->total, 1);
    /* Freed blocks must not serve threads that still allocate. */
    pthread_barrier_wait(&there);
    if (thread->part)
        release(&thread->list, thread->part);
    if (thread->ends)
        return NULL;
    pthread_barrier_wait(&there);
    for (;;)
        pause();
}

static void threads(int count, size_t least, size_t most, size_t total, unsigned long part, int ends)
{
    struct thread *all = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_t ids[count];
    pthread_barrier_init(&there, NULL, (unsigned)count + 1);
    for (int i = 0; i < count; i++) {
        all[i] = (struct thread){least, most, total / (size_t)count, part, ends, {NULL, 1234567u + (unsigned)i}};
        check(pthread_create(&ids[i], NULL, work, &all[i]) == 0, "pthread_create");
    }
    pthread_barrier_wait(&there);
    if (!ends)
        pthread_barrier_wait(&there);
    for (int i = 0; i < count; i++) {
        if (ends)
            pthread_join(ids[i], NULL);
        struct block *last = all[i].list.first;
        while (last && last->next)
            last = last->next;
        if (last) {
            last->next = own.first;
            own.first = all[i].list.first;
        }
    }
}

static void *ticker(void *argument)
{
    static struct list list = {NULL, 99};
    size_t each = (size_t)argument;
    for (;;) {
        fill(&list, 500, 3000, each / 20, 1);
        usleep(50000);
    }
}

static void *churner(void *argument)
{
    static struct list list = {NULL, 77};
    for (;;) {
        fill(&list, 16, 3000, (size_t)argument, 1);
        release(&list, 100);
        usleep(1000);
    }
}

#endif
