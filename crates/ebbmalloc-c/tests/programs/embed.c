/* A program with CPython inside. Prints the number of blocks in use of CPython's own allocator, once for each interpreter
 * that it starts.
 *
 *   embed LIBRARY MODE
 *
 * LIBRARY is opened with RTLD_LOCAL; "-": the program was linked with it. Declared here instead of in Python.h is what is the same
 * from CPython 3.8 on, so that no version's headers are needed. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int kind;
    const char *function, *message;
    int exit_code;
} Status;
typedef struct {
    void *context;
    void *(*malloc)(void *, size_t);
    void *(*calloc)(void *, size_t, size_t);
    void *(*realloc)(void *, void *, size_t);
    void (*free)(void *, void *);
} Functions;
/* PyPreConfig from its first to its last field. */
typedef struct {
    int config_init, parse_argv, isolated, use_environment, configure_locale, coerce_c_locale, coerce_c_locale_warn,
        utf8_mode, dev_mode, allocator;
} Before;
enum { DOMAIN_OBJECT = 2, ALLOCATOR_PYMALLOC = 5 };
/* Larger than PyConfig of any version. */
enum { CONFIG_BYTES = 4096 };

static void *library = RTLD_DEFAULT;

static void *find(const char *name) {
    void *found = dlsym(library, name);
    if (found == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    return found;
}
#define CALL(result, name, ...) ((result (*)(__VA_ARGS__))find(name))

static void check(Status status) {
    if (status.kind == 0) return;
    fprintf(stderr, "%s: %s\n", status.function, status.message);
    exit(2);
}

static void show(void) {
    const char *script = "import sys, json\n"
                         "data = json.loads(json.dumps([{str(i): [i * 1.5] * 3} for i in range(2000)]))\n"
                         "assert len(data) == 2000\n"
                         "print(sys.getallocatedblocks(), flush=True)\n";
    if (CALL(int, "PyRun_SimpleStringFlags", const char *, void *)(script, NULL) != 0) exit(2);
}

static void start(void) { CALL(void, "Py_InitializeEx", int)(0); }
static void stop(void) {
    if (CALL(int, "Py_FinalizeEx", void)() != 0) exit(2);
}

static void start_isolated(void) {
    void *config = calloc(1, CONFIG_BYTES);
    CALL(void, "PyConfig_InitIsolatedConfig", void *)(config);
    check(CALL(Status, "Py_InitializeFromConfig", void *)(config));
    CALL(void, "PyConfig_Clear", void *)(config);
    free(config);
}

static void choose_pymalloc(void) {
    Before before;
    CALL(void, "PyPreConfig_InitPythonConfig", Before *)(&before);
    before.allocator = ALLOCATOR_PYMALLOC;
    check(CALL(Status, "Py_PreInitialize", Before *)(&before));
}

/* An allocator of the program's own, around the one before it. */
static Functions inner;
static long outstanding, requests;
static void *count_malloc(void *context, size_t size) {
    outstanding++, requests++;
    return inner.malloc(context, size);
}
static void *count_calloc(void *context, size_t n, size_t size) {
    outstanding++, requests++;
    return inner.calloc(context, n, size);
}
static void *count_realloc(void *context, void *block, size_t size) {
    outstanding += block == NULL, requests++;
    return inner.realloc(context, block, size);
}
static void count_free(void *context, void *block) {
    outstanding -= block != NULL;
    inner.free(context, block);
}

static void set_own_allocator(void) {
    CALL(void, "PyMem_GetAllocator", int, Functions *)(DOMAIN_OBJECT, &inner);
    Functions own = {inner.context, count_malloc, count_calloc, count_realloc, count_free};
    CALL(void, "PyMem_SetAllocator", int, Functions *)(DOMAIN_OBJECT, &own);
}

static void subinterpreters(void) {
    void *threads[3], *main = CALL(void *, "PyThreadState_Get", void)();
    for (int n = 0; n < 3; n++) {
        threads[n] = CALL(void *, "Py_NewInterpreter", void)();
        if (threads[n] == NULL) exit(2);
        show();
    }
    for (int n = 0; n < 3; n++) {
        CALL(void *, "PyThreadState_Swap", void *)(threads[n]);
        CALL(void, "Py_EndInterpreter", void *)(threads[n]);
    }
    CALL(void *, "PyThreadState_Swap", void *)(main);
}

int main(int argc, char **argv) {
    if (argc != 3) return 64;
    const char *mode = argv[2];
    int is_reopened = strcmp(mode, "reopened") == 0;
    if (strcmp(argv[1], "-") != 0) {
        /* A bare name is looked for in LD_LIBRARY_PATH. */
        library = dlopen(is_reopened ? strrchr(argv[1], '/') + 1 : argv[1], RTLD_NOW | RTLD_LOCAL);
        if (library == NULL) {
            fprintf(stderr, "%s\n", dlerror());
            return 2;
        }
    }
    if (strcmp(mode, "isolated") == 0) {
        start_isolated();
    } else if (strcmp(mode, "pymalloc") == 0) {
        choose_pymalloc();
        start();
    } else if (strcmp(mode, "own") == 0) {
        set_own_allocator();
        start();
    } else {
        start();
    }
    show();
    if (strcmp(mode, "subinterpreters") == 0) subinterpreters();
    stop();
    /* Three lives of one library, which is opened once more in between. */
    for (int turn = 0; (is_reopened || strcmp(mode, "again") == 0) && turn < 2; turn++) {
        if (is_reopened && dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) != library) return 2;
        start();
        show();
        stop();
    }
    if (strcmp(mode, "own") == 0 && (requests < 10000 || outstanding < 0)) {
        fprintf(stderr, "the program's own allocator had %ld requests, %ld outstanding\n", requests, outstanding);
        return 2;
    }
    puts("ok");
    return 0;
}
