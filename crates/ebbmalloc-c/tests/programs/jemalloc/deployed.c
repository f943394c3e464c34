/* Run with each of the settings that are known from production: a burst of threads, then idle. The
 * settings' own decay is the time that free memory may stay. */
#include "control.h"

#define THREADS 6

static void *worker(void *seed) {
    struct churn *set = malloc(sizeof *set);
    churn_start(set, (uint64_t)(uintptr_t)seed);
    for (int step = 0; step < 20000; step++) churn_step(set);
    churn_end(set);
    free(set);
    return NULL;
}

int main(void) {
    require_preload();
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, worker, (void *)(i + 1)) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    refresh();
    CHECK(GET(size_t, "stats.allocated") < 16 * MIB);
    CHECK(GET(size_t, "stats.resident") >= GET(size_t, "stats.active"));
    /* The settings arrived. */
    const char *settings = getenv("MALLOC_CONF");
    CHECK(settings != NULL);
    const char *decay = strstr(settings, "dirty_decay_ms:");
    CHECK(decay != NULL);
    CHECK(GET(ssize_t, "opt.dirty_decay_ms") == atol(decay + strlen("dirty_decay_ms:")));
    CHECK(GET(bool, "opt.background_thread") == (strstr(settings, "background_thread:true") != NULL));
    CHECK(GET(bool, "opt.tcache") == (strstr(settings, "tcache:false") == NULL));
    if (strstr(settings, "narenas:1") != NULL) CHECK(GET(unsigned, "opt.narenas") == 1);
    if (strstr(settings, "narenas:2") != NULL) CHECK(GET(unsigned, "opt.narenas") == 2);
    if (strstr(settings, "percpu_arena:percpu") != NULL)
        CHECK(strcmp(GET(const char *, "opt.percpu_arena"), "percpu") == 0);
    CHECK(GET(bool, "opt.prof") == (strstr(settings, "prof:true") != NULL));
    return passed();
}
