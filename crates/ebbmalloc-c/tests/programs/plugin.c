/* A plug-in: allocates when it is loaded, while it is used and when it is unloaded; blocks pass between it, the program
 * and libc; and it loads another library that only its own RUNPATH finds. */
#include "check.h"
#include <link.h>

static void *kept, *walked[50];

static int visit(struct dl_phdr_info *info, size_t size, void *count) {
    (void)size;
    char *name = strdup(info->dlpi_name);
    *(size_t *)count += name != NULL;
    free(name);
    return 0;
}

/* Allocates while the loader's locks are held, for the walk too. */
__attribute__((constructor)) static void on_load(void) {
    size_t count = 0;
    dl_iterate_phdr(visit, &count);
    for (size_t i = 0; i < 50; i++) walked[i] = MUST(malloc(10 * i + count));
    kept = FILLED(5000);
}

__attribute__((destructor)) static void on_unload(void) {
    for (size_t i = 0; i < 50; i++) free(walked[i]);
    RELEASE(kept, 5000);
    free(malloc(123));
}

static __thread void *per_thread;

void *plugin_make(size_t size) {
    free(per_thread);
    per_thread = malloc(64);
    void *block = FILLED(size);
    free(per_thread);
    per_thread = NULL;
    return block;
}

void drop(void *block) { free(block); }

char *give(void) { return malloc(100); }

void libc_gives_and_we_drop(void) { free(strdup("from libc")); }

void *open_beside(const char *name) { return dlopen(name, RTLD_NOW | RTLD_DEEPBIND); }
