/* A library whose constructor walks the loader's list and allocates there, with the loader's locks held. */
#define _GNU_SOURCE
#include <link.h>
#include <stdlib.h>
#include <string.h>

static int visit(struct dl_phdr_info *info, size_t size, void *count) {
    (void)size;
    char *name = strdup(info->dlpi_name);
    *(size_t *)count += name != NULL;
    free(name);
    return 0;
}

static void *kept[50];

__attribute__((constructor)) static void begin(void) {
    size_t count = 0;
    dl_iterate_phdr(visit, &count);
    for (size_t i = 0; i < 50; i++) kept[i] = malloc(10 * i + count);
}

__attribute__((destructor)) static void end(void) {
    for (size_t i = 0; i < 50; i++) free(kept[i]);
}
