/* Huge pages that the program asks for on a block: there while the block lives, not after it.
 * huge_asked free|shrink|move|raw; raw asks behind the allocator's back and must leave the mark. */
#include "check.h"

#define BLOCK (8 * MIB)

/* Bytes of [start, end) in mappings that huge pages were asked for (hg in smaps). */
static size_t asked(const char *start, const char *end) {
    FILE *file = fopen("/proc/self/smaps", "r");
    CHECK(file != NULL);
    char line[1024];
    uintptr_t from = 0, to = 0;
    size_t bytes = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        unsigned long a, b;
        if (sscanf(line, "%lx-%lx ", &a, &b) == 2) {
            from = a < (uintptr_t)start ? (uintptr_t)start : a;
            to = b > (uintptr_t)end ? (uintptr_t)end : b;
        } else if (strncmp(line, "VmFlags:", 8) == 0 && strstr(line, " hg") != NULL && from < to) {
            bytes += to - from;
        }
    }
    CHECK(fclose(file) == 0);
    return bytes;
}

int main(int argc, char **argv) {
    require_preload();
    CHECK(argc == 2);
    const char *how = argv[1];
    /* A neighbour, so that the block cannot grow where it is. */
    char *block = malloc(BLOCK), *neighbour = malloc(BLOCK);
    CHECK(block != NULL && neighbour != NULL);
    char *end = block + BLOCK;
    int raw = strcmp(how, "raw") == 0;
    int refused = raw ? (int)syscall(SYS_madvise, block, BLOCK, MADV_HUGEPAGE)
                      : madvise(block, BLOCK, MADV_HUGEPAGE);
    if (refused != 0 && errno == EINVAL) {
        say("this kernel has no huge pages\n");
        return passed();
    }
    CHECK(refused == 0);
    errno = 0;
    CHECK(raw || (madvise(block + 1, BLOCK, MADV_HUGEPAGE) == -1 && errno == EINVAL));
    CHECK(asked(block, end) == BLOCK);
    memset(block, 1, BLOCK);
    if (raw) {
        free(block);
        CHECK(asked(block, end) == BLOCK);
        return passed();
    }
    if (strcmp(how, "free") == 0) {
        free(block);
        CHECK(asked(block, end) == 0);
    } else if (strcmp(how, "shrink") == 0) {
        char *kept = realloc(block, 3 * MIB);
        CHECK(kept == block);
        CHECK(asked(block, block + 3 * MIB) == 3 * MIB);
        CHECK(asked(block + 3 * MIB, end) == 0);
        free(kept);
        CHECK(asked(block, end) == 0);
    } else {
        CHECK(strcmp(how, "move") == 0);
        char *moved = realloc(block, 4 * BLOCK);
        CHECK(moved != NULL && moved != block && moved[BLOCK - 1] == 1);
        CHECK(asked(block, end) == 0);
        free(moved);
        CHECK(asked(moved, moved + 4 * BLOCK) == 0);
    }
    free(neighbour);
    return passed();
}
