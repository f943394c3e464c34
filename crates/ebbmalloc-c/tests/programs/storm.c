/* Six threads make processes in every way, while others allocate, and
 *   threads   others start and end,
 *   stdio     others are in getline, fflush(NULL), fopen and fclose,
 *   loader    others are in dlopen, dlclose, setlocale and newlocale; a constructor is in dl_iterate_phdr,
 *   handlers  handlers of fork allocate, before and after the allocator's own.
 * Arguments: the scene, rounds of 1000 processes, for `loader` the library with the constructor. */
#include "storm.h"
#include <locale.h>

static const char *plugin;

static void *keep_allocating(void *seed) {
    struct churn set;
    churn_start(&set, (uintptr_t)seed);
    while (!atomic_load(&storm_over)) {
        for (int i = 0; i < 200; i++) churn_step(&set);
        usleep(200);
    }
    churn_end(&set);
    return NULL;
}

static void *allocate_little(void *seed) {
    struct churn set;
    churn_start(&set, (uintptr_t)seed);
    for (int i = 0; i < 100; i++) churn_step(&set);
    churn_end(&set);
    return NULL;
}

static void *keep_starting(void *seed) {
    while (!atomic_load(&storm_over)) {
        pthread_t thread[4];
        for (int i = 0; i < 4; i++)
            CHECK(pthread_create(&thread[i], NULL, allocate_little, seed) == 0);
        for (int i = 0; i < 4; i++) CHECK(pthread_join(thread[i], NULL) == 0);
    }
    return NULL;
}

static FILE *lines(void) {
    FILE *file = tmpfile();
    CHECK(file != NULL);
    for (int i = 0; i < 20; i++) CHECK(fprintf(file, "%0*d\n", 100 * i + 10, i) > 0);
    return file;
}

static void *keep_reading(void *unused) {
    (void)unused;
    FILE *file = lines();
    while (!atomic_load(&storm_over)) {
        rewind(file);
        char *line = NULL;
        size_t room = 0;
        while (getline(&line, &room, file) > 0) {
            free(line);
            line = NULL;
            room = 0;
        }
        free(line);
    }
    fclose(file);
    return NULL;
}

static void *keep_flushing(void *unused) {
    (void)unused;
    while (!atomic_load(&storm_over)) {
        fflush(NULL);
        usleep(50);
    }
    return NULL;
}

static void *keep_opening(void *unused) {
    (void)unused;
    while (!atomic_load(&storm_over)) {
        FILE *file = fopen("/proc/self/stat", "r");
        CHECK(file != NULL && fgetc(file) != EOF);
        fclose(file);
    }
    return NULL;
}

static void *keep_loading(void *unused) {
    (void)unused;
    while (!atomic_load(&storm_over)) {
        void *handle = dlopen(plugin, RTLD_NOW);
        CHECK(handle != NULL);
        dlclose(handle);
    }
    return NULL;
}

static void *keep_changing_locale(void *unused) {
    (void)unused;
    while (!atomic_load(&storm_over)) {
        CHECK(setlocale(LC_ALL, "C.UTF-8") != NULL && setlocale(LC_ALL, "C") != NULL);
        locale_t made_here = newlocale(LC_ALL_MASK, "C.UTF-8", (locale_t)0);
        CHECK(made_here != (locale_t)0);
        freelocale(made_here);
    }
    return NULL;
}

/* What handlers leave to those that run after the fork, the last first. */
static __thread struct churn *kept[2];
static __thread size_t depth;
static int handlers_allocate;

static void before(void) {
    if (!handlers_allocate) return;
    struct churn *set = malloc(sizeof *set);
    CHECK(set != NULL && depth < 2);
    kept[depth++] = set;
    churn_start(set, 5);
    for (int i = 0; i < 100; i++) churn_step(set);
}

static void after(void) {
    if (depth == 0) return;
    struct churn *set = kept[--depth];
    for (int i = 0; i < 100; i++) churn_step(set);
    churn_end(set);
    free(set);
}

/* More blocks than there are places outside the heap. */
static __thread void **many;
enum { MANY = 1500 };

static void many_before(void) {
    if (!handlers_allocate) return;
    many = malloc(MANY * sizeof *many);
    CHECK(many != NULL);
    for (size_t i = 0; i < MANY; i++) CHECK((many[i] = malloc(20 + i % 700)) != NULL);
}

static void many_after(void) {
    if (many == NULL) return;
    for (size_t i = 0; i < MANY; i++) free(many[i]);
    free(many);
    many = NULL;
}

/* The first code of the program that runs: what is registered here comes before the allocator's own. */
static void register_first(void) {
    pthread_atfork(before, after, after);
    pthread_atfork(many_before, many_after, many_after);
}
__attribute__((section(".preinit_array"), used)) static void (*const first)(void) = register_first;

int main(int count, char **arguments) {
    require_preload();
    CHECK(count >= 3);
    const char *scene = arguments[1];
    if (count > 3) plugin = arguments[3];
    void *(*other[16])(void *) = {keep_allocating, keep_allocating};
    size_t others = 2;
    if (strcmp(scene, "threads") == 0) {
        other[others++] = keep_starting;
    } else if (strcmp(scene, "stdio") == 0) {
        for (int i = 0; i < 4; i++) other[others++] = keep_reading;
        other[others++] = keep_flushing;
        other[others++] = keep_opening;
    } else if (strcmp(scene, "loader") == 0) {
        other[others++] = keep_loading;
        other[others++] = keep_changing_locale;
    } else {
        CHECK(strcmp(scene, "handlers") == 0);
        handlers_allocate = 1;
        CHECK(pthread_atfork(before, after, after) == 0);
    }
    storm(atol(arguments[2]), other, others);
    return passed();
}
