/* Preloaded: reserves HOLE_GIB GiB of address space that is never used, before the program loads its
 * plug-ins. The kernel puts what is mapped later below it. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

__attribute__((constructor)) static void reserve(void) {
    const char *gib = getenv("HOLE_GIB");
    if (gib == NULL) return;
    size_t bytes = strtoull(gib, NULL, 10) << 30;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    if (bytes == 0 || mmap(NULL, bytes, PROT_NONE, flags, -1, 0) == MAP_FAILED) {
        fprintf(stderr, "hole: HOLE_GIB=%s cannot be reserved\n", gib);
        exit(1);
    }
}
