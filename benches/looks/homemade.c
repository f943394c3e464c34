/* An allocator that no tool knows: powers of two from one reservation, free lists; it returns nothing to the kernel. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *next, *end;
static void *lists[64];

static size_t *header_of(void *block)
{
    return (size_t *)block - 2;
}

static void *take(size_t align, size_t size)
{
    if (size < 48)
        size = 48;
    int class = 64 - __builtin_clzl(size + 15);
    pthread_mutex_lock(&lock);
    void *block = align <= 16 ? lists[class] : NULL;
    if (block) {
        lists[class] = *(void **)block;
    } else {
        if (!next) {
            next = mmap(NULL, 1ul << 36, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            end = next + (1ul << 36);
        }
        uintptr_t at = ((uintptr_t)next + 16 + align - 1) & -(uintptr_t)align;
        block = (void *)at;
        next = (char *)block + (1ul << class) - 16;
        *header_of(block) = (size_t)class;
    }
    pthread_mutex_unlock(&lock);
    return block;
}

void *malloc(size_t size)
{
    return take(16, size);
}

void free(void *block)
{
    if (!block)
        return;
    pthread_mutex_lock(&lock);
    size_t class = *header_of(block);
    *(void **)block = lists[class];
    lists[class] = block;
    pthread_mutex_unlock(&lock);
}

size_t malloc_usable_size(void *block)
{
    return block ? (1ul << *header_of(block)) - 16 : 0;
}

void *calloc(size_t count, size_t size)
{
    return memset(malloc(count * size), 0, count * size);
}

void *realloc(void *old, size_t size)
{
    void *block = malloc(size);
    size_t room = malloc_usable_size(old);
    if (old)
        memcpy(block, old, room < size ? room : size);
    free(old);
    return block;
}

void *aligned_alloc(size_t align, size_t size)
{
    return take(align, size);
}

void *memalign(size_t align, size_t size)
{
    return take(align, size);
}

int posix_memalign(void **block, size_t align, size_t size)
{
    *block = take(align, size);
    return 0;
}
