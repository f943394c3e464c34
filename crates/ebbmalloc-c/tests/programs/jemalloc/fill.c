/* junk and zero by settings: what is handed out and what was freed. Run with MALLOC_CONF=junk:true,
 * junk:alloc, junk:free or zero:true. */
#include "control.h"

static bool all(const unsigned char *block, unsigned char byte, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (block[i] != byte) return false;
    return true;
}

int main(void) {
    require_preload();
    const char *junk = GET(const char *, "opt.junk");
    bool zero = GET(bool, "opt.zero");
    bool on_alloc = strcmp(junk, "true") == 0 || strcmp(junk, "alloc") == 0;
    bool on_free = strcmp(junk, "true") == 0 || strcmp(junk, "free") == 0;
    CHECK(zero || on_alloc || on_free);
    for (size_t size = 8; size <= 2 * MIB; size = size * 2 + 8) {
        for (int round = 0; round < 3; round++) {
            volatile unsigned char *dirty = malloc(size);
            for (size_t i = 0; i < size; i++) dirty[i] = 0x77;
            free((void *)dirty);
        }
        unsigned char *blocks[] = {malloc(size), aligned_alloc(64, size), mallocx(size, 0),
                                   mallocx(size, MALLOCX_TCACHE_NONE)};
        for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
            CHECK(blocks[i] != NULL);
            if (zero) CHECK(all(blocks[i], 0, size));
            else if (on_alloc) CHECK(all(blocks[i], 0xa5, size));
            free(blocks[i]);
        }
        /* Zeros that are asked for win. */
        unsigned char *block = calloc(1, size);
        CHECK(all(block, 0, size));
        free(block);
        /* Growth: the old bytes stay, the new ones are filled. */
        block = malloc(size);
        memset(block, 0x31, size);
        size_t usable = malloc_usable_size(block);
        memset(block, 0x31, usable);
        block = realloc(block, 3 * size + 100);
        CHECK(all(block, 0x31, size));
        if (zero) CHECK(all(block + usable, 0, 3 * size + 100 - usable));
        else if (on_alloc) CHECK(all(block + usable, 0xa5, 3 * size + 100 - usable));
        free(block);
    }
    if (on_free) {
        /* A small block's slot is still mapped: it reads as junk. */
        volatile unsigned char *block = malloc(200);
        void *neighbour = malloc(200);
        for (int i = 0; i < 200; i++) block[i] = 0x55;
        volatile unsigned char *gone = block;
        free((void *)block);
        for (int i = 16; i < 200; i++) CHECK(gone[i] == 0x5a);
        free(neighbour);
    }
    return passed();
}
