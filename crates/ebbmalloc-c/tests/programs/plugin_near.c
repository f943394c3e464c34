/* What is loaded after the heap's address space was reserved lies beside what was loaded before: a branch
 * across a terabyte is predicted worse. Argument: the plug-in. */
#include "check.h"

int main(int count, char **arguments) {
    require_preload();
    CHECK(count == 2);
    void *block = malloc(100);
    CHECK(block != NULL);
    void *plugin = dlopen(arguments[1], RTLD_NOW);
    CHECK(plugin != NULL);
    uintptr_t late = (uintptr_t)dlsym(plugin, "plugin_make"), early = (uintptr_t)dlsym(RTLD_DEFAULT, "getpid");
    CHECK(late != 0 && early != 0);
    uintptr_t apart = late < early ? early - late : late - early;
    CHECK(apart < (uintptr_t)64 << 30);
    free(block);
    return passed();
}
