/* A preload with the fault that a benchmark must not overlook: once in a while it
 * gives out a block that is still in use. Nothing is ever freed. */
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

enum { HEAP_BYTES = 256 << 20, EVERY = 100 };

static _Atomic(char *) heap;
static atomic_size_t used;
static _Thread_local char *previous;
static _Thread_local size_t previous_bytes;
static _Thread_local unsigned requests;

void *malloc(size_t size_bytes)
{
    if (!atomic_load(&heap)) {
        /* The first request comes from the dynamic loader, before any thread. */
        char *at = mmap(NULL, HEAP_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED)
            return NULL;
        atomic_store(&heap, at);
    }
    if (++requests % EVERY == 0 && previous_bytes >= size_bytes)
        return previous;
    size_t offset = atomic_fetch_add(&used, (size_bytes + 15) / 16 * 16 + 16);
    if (offset + size_bytes > HEAP_BYTES)
        return NULL;
    previous = atomic_load(&heap) + offset;
    previous_bytes = size_bytes;
    return previous;
}

void free(void *block)
{
    (void)block;
}

void *calloc(size_t count, size_t each_bytes)
{
    return malloc(count * each_bytes);
}

void *realloc(void *block, size_t size_bytes)
{
    void *moved = malloc(size_bytes);
    if (moved && block)
        memmove(moved, block, size_bytes);
    return moved;
}
