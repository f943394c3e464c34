/* Blocks and libraries: what is loaded early, late, with RTLD_DEEPBIND, or comes and goes. */
#include "check.h"
#include <stdbool.h>

/* Blocks from a constructor that ran before main are whole, and exit frees them without harm. */
static void early(void) {
    int (*early_blocks_hold)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "early_blocks_hold");
    CHECK(early_blocks_hold != NULL && early_blocks_hold());
    churn(1, 20000);
    CHECK(early_blocks_hold());
}

/* Loads and unloads a plug-in that allocates, from several threads; blocks outlive the plug-in that made them.
 * Argument: the plug-in. */
static const char *plugin_path;

static void *load_and_unload(void *seed) {
    struct churn set;
    churn_start(&set, (uintptr_t)seed);
    void *previous = NULL;
    size_t previous_size = 0;
    for (int turn = 0; turn < 150; turn++) {
        void *plugin = MUST(dlopen(plugin_path, turn % 2 ? RTLD_NOW : RTLD_LAZY | RTLD_LOCAL));
        void *(*make)(size_t) = (void *(*)(size_t))dlsym(plugin, "plugin_make");
        CHECK(make != NULL);
        size_t size = mixed_size(&set.random);
        void *block = make(size);
        CHECK(dlclose(plugin) == 0);
        CHECK(holds(block, size));
        if (previous != NULL) RELEASE(previous, previous_size);
        previous = block;
        previous_size = size;
        churn_steps(&set, 50);
    }
    free(previous);
    churn_end(&set);
    return NULL;
}

static void plug_ins(void) {
    plugin_path = arguments[1];
    pthread_t thread[3];
    start_all(thread, 3, load_and_unload);
    load_and_unload((void *)9);
    join_all(thread, 3);
}

/* What is loaded after the heap's address space was reserved lies next to what was loaded before: a loop of calls
 * across a terabyte is slower. Argument: the plug-in. */
static bool is_near(void *late) {
    uintptr_t early = (uintptr_t)dlsym(RTLD_DEFAULT, "getpid");
    CHECK(late != NULL && early != 0);
    uintptr_t apart = (uintptr_t)late < early ? early - (uintptr_t)late : (uintptr_t)late - early;
    return apart < (uintptr_t)64 << 30;
}

static void near(void) {
    void *block = MUST(malloc(100));
    void *plugin = MUST(dlopen(arguments[1], RTLD_NOW));
    CHECK(is_near(dlsym(plugin, "plugin_make")));
    /* The plug-in is small, and may lie in a gap between the others. A large library fits into none. */
    size_t bytes = 64 << 20;
    void *large = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(large != MAP_FAILED && is_near(large));
    free(block);
}

/* The allocator itself comes late, by dlopen in a process that runs on libc's: it must fit into the surplus of static
 * TLS, serve calls made through its handle as well as libc's, in threads that were there before it, across fork, and
 * stay harmless after dlclose. Argument: the library. */
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

static void late(void) {
    CHECK(pthread_barrier_init(&step, NULL, 2) == 0);
    pthread_t older = started(older_thread, NULL);
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
    pid_t child = forked();
    if (child == 0) {
        use_both(6);
        _exit(0);
    }
    use_both(7);
    reap(child);
    join(older);
    CHECK(dlclose(library) == 0);
    join(started(end_at_once, NULL));
    child = forked();
    if (child == 0) _exit(0);
    reap(child);
}

/* Loads the plug-in with RTLD_DEEPBIND, as PHP loads its extensions. Arguments: its file, and the name of another
 * library in its folder. */
static void deepbind(void) {
    void *plugin = MUST(dlopen(arguments[1], RTLD_LAZY | RTLD_GLOBAL | RTLD_DEEPBIND));
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
}

CASES(CASE(early), CASE(plug_ins), CASE(near), CASE(late), CASE(deepbind))
