/* Loads deep_plugin with RTLD_DEEPBIND, as PHP loads its extensions. Arguments: its file, and the name of another library
 * beside it. */
#include "check.h"

int main(int count, char **arguments) {
    require_preload();
    CHECK(count == 3);
    void *plugin = dlopen(arguments[1], RTLD_LAZY | RTLD_GLOBAL | RTLD_DEEPBIND);
    CHECK(plugin != NULL);
    void (*drop)(void *) = (void (*)(void *))dlsym(plugin, "drop");
    char *(*give)(void) = (char *(*)(void))dlsym(plugin, "give");
    void (*pass)(void) = (void (*)(void))dlsym(plugin, "libc_gives_and_we_drop");
    void *(*open_beside)(const char *) = (void *(*)(const char *))dlsym(plugin, "open_beside");
    CHECK(drop != NULL && give != NULL && pass != NULL && open_beside != NULL);
    for (size_t size = 1; size < 4 * MIB; size = size * 3 + 1) {
        drop(malloc(size));
        free(give());
        pass();
    }
    /* The loader searches for the caller: its RUNPATH has the library, ours has none. */
    CHECK(dlopen(arguments[2], RTLD_NOW) == NULL && dlerror() != NULL);
    void *beside = open_beside(arguments[2]);
    if (beside == NULL) say(dlerror());
    CHECK(beside != NULL && beside != plugin);
    free(((char *(*)(void))dlsym(beside, "give"))());
    CHECK(dlclose(beside) == 0);
    /* The program itself, and what is loaded already. */
    CHECK(dlopen(NULL, RTLD_NOW) != NULL && dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD) != NULL);
    CHECK(dlopen("/no/such/library.so", RTLD_NOW | RTLD_DEEPBIND) == NULL && dlerror() != NULL);
    return passed();
}
