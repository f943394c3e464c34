/* A plug-in: allocates when it is loaded, while it is used and when it is unloaded. */
#include "check.h"

static void *kept;

__attribute__((constructor)) static void on_load(void) {
    kept = malloc(5000);
    CHECK(kept != NULL);
    fill(kept, 5000);
}

__attribute__((destructor)) static void on_unload(void) {
    CHECK(holds(kept, 5000));
    free(kept);
    free(malloc(123));
}

static __thread void *per_thread;

void *plugin_make(size_t size) {
    free(per_thread);
    per_thread = malloc(64);
    void *block = malloc(size);
    CHECK(block != NULL);
    fill(block, size);
    free(per_thread);
    per_thread = NULL;
    return block;
}
