/* An extension with an allocator of its own inside, whose symbols no other object sees. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef MIMALLOC
void *mi_malloc(size_t size);
void mi_free(void *block);
#define malloc mi_malloc
#define free mi_free
#endif

__attribute__((visibility("default"))) long extension_state(long megabytes, long part)
{
    static void **first;
    uint64_t state = 88172645463325252u;
    long live = 0;
    for (long sum = 0; sum < megabytes * 1000000;) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        size_t asked = 200 + state % 2800;
        void **block = malloc(asked);
        memset(block, 1, asked);
        block[0] = first;
        block[1] = (void *)asked;
        first = block;
        sum += asked;
        live += asked;
    }
    for (void ***link = (void ***)&first; *link;) {
        void **block = *link;
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        if ((long)(state % 100) < part) {
            *link = *block;
            live -= (long)block[1];
            free(block);
        } else {
            link = (void ***)block;
        }
    }
    return live;
}
