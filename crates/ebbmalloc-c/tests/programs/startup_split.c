/* glibc before 2.34: the program lacks libpthread until a library brings it (IN_LIBRARY), and may lack libdl
 * (EBB_STATIC, which leaves out the calls of dlsym). Argument: the library. */
#include "check.h"

#ifdef IN_LIBRARY
static void *fill_cache(void *unused) {
    void *block[2000];
    for (size_t i = 0; i < 2000; i++) block[i] = FILLED(1 + i % 2000);
    for (size_t i = 0; i < 2000; i++) free(block[i]);
    return unused;
}

/* Threads come and go, and what they freed is used again. */
void threads_come_and_go(void) {
    run_threads(4, fill_cache);
    size_t before = resident_bytes();
    for (int i = 0; i < 500; i++) join(started(fill_cache, NULL));
    CHECK(resident_bytes() < before + 32 * MIB);
}
#else
int main(int count, char **given) {
    require_preload();
    churn(1, 20000);
#ifdef EBB_STATIC
    (void)count, (void)given;
#else
    if (count > 1) {
        void *library = dlopen(given[1], RTLD_NOW | RTLD_GLOBAL);
        if (library == NULL) say(dlerror());
        CHECK(library != NULL);
        ((void (*)(void))dlsym(library, "threads_come_and_go"))();
    }
#endif
    pid_t child = forked();
    if (child == 0) {
        churn(2, 5000);
        _exit(0);
    }
    reap(child);
    return passed();
}
#endif
