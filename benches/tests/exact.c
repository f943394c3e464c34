/* A preload whose result is known beforehand: every request has pages of its own,
 * and free unmaps them at once. What stays resident above the live heap must then be
 * the page-granular bound, nothing more and nothing less. */
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

/* In the block's first page, so that it makes no further page resident. */
enum { HEADER_BYTES = 16 };

void *malloc(size_t size_bytes)
{
    char *at = mmap(NULL, size_bytes + HEADER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        errno = ENOMEM;
        return NULL;
    }
    *(size_t *)at = size_bytes;
    return at + HEADER_BYTES;
}

void free(void *block)
{
    if (block) {
        char *at = (char *)block - HEADER_BYTES;
        munmap(at, *(size_t *)at + HEADER_BYTES);
    }
}

void *calloc(size_t count, size_t each_bytes)
{
    size_t size_bytes;
    if (__builtin_mul_overflow(count, each_bytes, &size_bytes))
        return NULL;
    return malloc(size_bytes); /* fresh pages are zero */
}

void *realloc(void *block, size_t size_bytes)
{
    void *moved = malloc(size_bytes);
    if (moved && block) {
        size_t old_bytes = *(size_t *)((char *)block - HEADER_BYTES);
        memcpy(moved, block, old_bytes < size_bytes ? old_bytes : size_bytes);
        free(block);
    }
    return moved;
}
