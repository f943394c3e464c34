/* The allocator itself comes late, by dlopen in a process that runs on libc's: it must fit into the
 * surplus of static TLS, serve calls made through its handle beside libc's, in threads that were
 * there before it, across fork, and stay harmless after dlclose. Argument: the library. */
#include "check.h"

static void *(*late_malloc)(size_t);
static void (*late_free)(void *);
static pthread_barrier_t step;

static void use_both(uint64_t seed) {
    for (int turn = 0; turn < 2000; turn++) {
        size_t size = mixed_size(&seed);
        void *theirs = malloc(size), *ours = late_malloc(size);
        CHECK(theirs != NULL && ours != NULL);
        fill(theirs, size);
        fill(ours, size);
        CHECK(holds(theirs, size) && holds(ours, size));
        late_free(ours);
        free(theirs);
    }
}

static void *older_thread(void *unused) {
    pthread_barrier_wait(&step);
    pthread_barrier_wait(&step);
    use_both(3);
    return unused;
}

static void *end_at_once(void *unused) {
    free(malloc(100));
    return unused;
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    CHECK(pthread_barrier_init(&step, NULL, 2) == 0);
    pthread_t older;
    CHECK(pthread_create(&older, NULL, older_thread, NULL) == 0);
    pthread_barrier_wait(&step);
    void *library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) say(dlerror());
    CHECK(library != NULL);
    late_malloc = (void *(*)(size_t))dlsym(library, "malloc");
    late_free = (void (*)(void *))dlsym(library, "free");
    CHECK(late_malloc != NULL && late_free != NULL);
    Dl_info info;
    CHECK(dladdr((void *)late_malloc, &info) != 0);
    CHECK(strcmp(info.dli_fname, arguments[1]) == 0);
    pthread_barrier_wait(&step);
    use_both(5);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        use_both(6);
        _exit(0);
    }
    use_both(7);
    reap(child);
    CHECK(pthread_join(older, NULL) == 0);
    CHECK(dlclose(library) == 0);
    pthread_t younger;
    CHECK(pthread_create(&younger, NULL, end_at_once, NULL) == 0);
    CHECK(pthread_join(younger, NULL) == 0);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) _exit(0);
    reap(child);
    return passed();
}
