/* What is loaded after the heap's address space was reserved lies beside what was loaded before: a loop of
 * calls across a terabyte is slower. Argument: the plug-in. */
#include "check.h"

#include <stdbool.h>

static bool is_near(void *late) {
    uintptr_t early = (uintptr_t)dlsym(RTLD_DEFAULT, "getpid");
    CHECK(late != NULL && early != 0);
    uintptr_t apart = (uintptr_t)late < early ? early - (uintptr_t)late : (uintptr_t)late - early;
    return apart < (uintptr_t)64 << 30;
}

int main(int count, char **arguments) {
    require_preload();
    CHECK(count == 2);
    void *block = malloc(100);
    CHECK(block != NULL);
    void *plugin = dlopen(arguments[1], RTLD_NOW);
    CHECK(plugin != NULL);
    CHECK(is_near(dlsym(plugin, "plugin_make")));
    /* The plug-in is small, and may lie in a gap between the others. A large library fits into none. */
    size_t bytes = 64 << 20;
    void *large = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(large != MAP_FAILED && is_near(large));
    free(block);
    return passed();
}
