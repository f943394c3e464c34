/* Loads and unloads a plug-in that allocates, from several threads; blocks outlive the plug-in that
 * made them. Argument: the plug-in. */
#include "check.h"

static const char *plugin_path;

static void *load_and_unload(void *seed) {
    struct churn set;
    churn_start(&set, (uintptr_t)seed);
    void *previous = NULL;
    size_t previous_size = 0;
    for (int turn = 0; turn < 150; turn++) {
        void *plugin = dlopen(plugin_path, turn % 2 ? RTLD_NOW : RTLD_LAZY | RTLD_LOCAL);
        CHECK(plugin != NULL);
        void *(*make)(size_t) = (void *(*)(size_t))dlsym(plugin, "plugin_make");
        CHECK(make != NULL);
        size_t size = mixed_size(&set.random);
        void *block = make(size);
        CHECK(dlclose(plugin) == 0);
        CHECK(holds(block, size));
        if (previous != NULL) CHECK(holds(previous, previous_size));
        free(previous);
        previous = block;
        previous_size = size;
        for (int i = 0; i < 50; i++) churn_step(&set);
    }
    free(previous);
    churn_end(&set);
    return NULL;
}

int main(int count, char **arguments) {
    require_preload();
    CHECK(count == 2);
    plugin_path = arguments[1];
    pthread_t thread[3];
    for (uintptr_t i = 0; i < 3; i++)
        CHECK(pthread_create(&thread[i], NULL, load_and_unload, (void *)(i + 1)) == 0);
    load_and_unload((void *)9);
    for (size_t i = 0; i < 3; i++) CHECK(pthread_join(thread[i], NULL) == 0);
    return passed();
}
