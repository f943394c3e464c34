/* A small service, which preload/startup.rs builds and starts as an unusual host. Its own checks are few: what the
 * table varies is what happens before main. */
#include "check.h"

extern char **environ;

/* The setting that the table gives arrived: the allocator read it before or while libc was being set up. */
static void require_setting(void) {
    if (getenv("EBB_TEST_NOT_IN_CHARGE") != NULL || getenv("EBB_TEST_FOREIGN_ALLOCATOR") != NULL) return;
    int (*control)(const char *, void *, size_t *, void *, size_t) =
        (int (*)(const char *, void *, size_t *, void *, size_t))dlsym(RTLD_DEFAULT, "mallctl");
    ssize_t decay = 0;
    size_t length = sizeof decay;
    CHECK(control != NULL && control("opt.dirty_decay_ms", &decay, &length, NULL, 0) == 0);
    CHECK(environ != NULL && decay == 1234);
}

static void *work(void *seed) {
    churn((uintptr_t)seed, 5000);
    return NULL;
}

/* Blocks, threads, and a fork between them. */
static void serves(void) {
    require_setting();
    churn(1, 20000);
    run_threads(4, work);
    pid_t child = forked();
    if (child == 0) {
        run_threads(2, work);
        _exit(0);
    }
    reap(child);
    run_threads(4, work);
}

/* Loads 0.so, 1.so and so on, until there is no room for another one's static TLS. */
static void fill_static_tls(const char *folder) {
    char path[PATH_MAX];
    for (int next = 0;; next++) {
        snprintf(path, sizeof path, "%s/%d.so", folder, next);
        CHECK(access(path, R_OK) == 0);
        if (dlopen(path, RTLD_NOW) == NULL) break;
    }
    CHECK(strstr(dlerror(), "static TLS") != NULL);
}

/* The room that threads have for static TLS is full. The allocator is refused, if it is named, and the program goes on.
 * Arguments: a folder of libraries, one of smaller ones, and the allocator. */
static void full(void) {
    fill_static_tls(arguments[1]);
    fill_static_tls(arguments[2]);
    if (argument_count > 3) {
        CHECK(dlopen(arguments[3], RTLD_NOW) == NULL);
        CHECK(strstr(dlerror(), "static TLS") != NULL);
    }
    serves();
}

/* A library that wants an executable stack, while threads run. glibc refuses it since 2.41. Argument: the library. */
static pthread_barrier_t loaded;

static void *wait_and_work(void *seed) {
    pthread_barrier_wait(&loaded);
    return work(seed);
}

static void stack(void) {
    CHECK(pthread_barrier_init(&loaded, NULL, 2) == 0);
    pthread_t older = started(wait_and_work, (void *)1);
    if (dlopen(arguments[1], RTLD_NOW) == NULL) CHECK(strstr(dlerror(), "executable stack") != NULL);
    pthread_barrier_wait(&loaded);
    join(older);
    serves();
}

#ifdef COPIED
/* A variable of the allocator's, which the linker has moved into the program. */
extern void (*malloc_message)(void *, const char *);
extern void malloc_stats_print(void (*)(void *, const char *), void *, const char *);

static size_t heard;

static void hear(void *unused, const char *text) {
    (void)unused;
    heard += strlen(text);
}

static void copied(void) {
    malloc_message = hear;
    malloc_stats_print(NULL, NULL, NULL);
    CHECK(heard > 0);
    malloc_message = NULL;
    serves();
}
#else
static void copied(void) { CHECK(!"built with COPIED"); }
#endif

CASES(CASE(serves), CASE(full), CASE(stack), CASE(copied))
