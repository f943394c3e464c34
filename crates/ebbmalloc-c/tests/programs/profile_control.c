// The profile's part of the control tree, in a program that starts with prof:true,prof_active:false.
#include "check.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>

__attribute__((weak)) int mallctl(const char *, void *, size_t *, void *, size_t);

static char path[4096];

static bool truth(const char *name)
{
    bool value;
    size_t bytes = sizeof value;
    CHECK(mallctl(name, &value, &bytes, NULL, 0) == 0);
    return value;
}

static void set(const char *name, bool value)
{
    CHECK(mallctl(name, NULL, NULL, &value, sizeof value) == 0);
}

// Live bytes of all threads in a dump of now, as sampled.
static long dumped(const char *thread)
{
    const char *to = path;
    CHECK(mallctl("prof.dump", NULL, NULL, &to, sizeof to) == 0);
    FILE *file = fopen(path, "r");
    CHECK(file);
    static char line[4096];
    long bytes = -1;
    while (fgets(line, sizeof line, file) && line[0] != '@') {
        long count, live;
        if (sscanf(line, "  t%*[^:]: %ld: %ld", &count, &live) != 2)
            continue;
        bool all = !strncmp(line, "  t*", 4);
        if (thread ? !all && strstr(line, thread) != NULL : all)
            bytes = live;
    }
    fclose(file);
    return bytes;
}

static atomic_int state;
static void *kept[20000];

// Plays with one block while the others look; in state 1 keeps what it allocates.
static void *player(void *nothing)
{
    const char *name = "player one";
    CHECK(mallctl("thread.prof.name", NULL, NULL, &name, sizeof name) == 0);
    for (int i = 0; i < 20000; i++) {
        while (state == 0)
            free(malloc(1000));
        kept[i] = malloc(1000);
    }
    CHECK(mallctl("thread.prof.name", &(const char *){ "" }, &(size_t){ sizeof(char *) }, NULL, 0) == 0);
    state = 2;
    while (state != 3)
        free(malloc(1000));
    return nothing;
}

int main(int count, char **arguments)
{
    CHECK(count == 2);
    snprintf(path, sizeof path, "%s/dump", arguments[1]);
    CHECK(!truth("prof.active") && truth("prof.thread_active_init"));
    void *before = malloc(1 << 22);
    CHECK(dumped(NULL) == 0);

    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, player, NULL) == 0);
    set("prof.active", true);
    CHECK(truth("prof.active"));
    void *block = malloc(1 << 22);
    CHECK(dumped(NULL) >= 1 << 22);
    // A thread that was there before, and asks nothing but what its cache has, is sampled too.
    state = 1;
    while (state != 2)
        ;
    CHECK(dumped("player one") > 0);
    free(block);

    // One thread alone is left out.
    set("thread.prof.active", false);
    CHECK(!truth("thread.prof.active"));
    set("prof.active", true);
    long live = dumped(NULL);
    block = malloc(1 << 22);
    CHECK(dumped(NULL) < live + (1 << 22));
    free(block);
    set("thread.prof.active", true);

    // A sampled block is as long as any other, and can be made longer and shorter.
    size_t lg = 0, bytes = sizeof lg;
    CHECK(mallctl("prof.reset", NULL, NULL, &lg, sizeof lg) == 0);
    CHECK(mallctl("prof.lg_sample", &lg, &bytes, NULL, 0) == 0 && lg == 0);
    size_t usable = 0;
    for (int i = 0; i < 100; i++) {
        char *small = malloc(100);
        CHECK(malloc_usable_size(small) == 112);
        memset(small, 7, 100);
        small = realloc(small, 3000);
        CHECK(small[0] == 7 && small[99] == 7 && malloc_usable_size(small) == 3072);
        small = realloc(small, 50000);
        CHECK(small[0] == 7 && small[99] == 7 && malloc_usable_size(small) >= 50000);
        small = realloc(small, 100);
        CHECK(small[0] == 7 && small[99] == 7 && malloc_usable_size(small) == 112);
        char *aligned = aligned_alloc(256, 300);
        CHECK((size_t)aligned % 256 == 0);
        char *zero = calloc(10, 10);
        for (int j = 0; j < 100; j++)
            CHECK(zero[j] == 0);
        usable += malloc_usable_size(zero);
        free(small);
        free(aligned);
        free(zero);
    }
    CHECK(usable == 100 * 112);
    // Everything that was sampled since the reset is gone, but what the player plays with.
    state = 3;
    pthread_join(thread, NULL);
    CHECK(dumped(NULL) < 100000);

    const char *nowhere = "/nowhere/at/all";
    CHECK(mallctl("prof.dump", NULL, NULL, &nowhere, sizeof nowhere) != 0);
    free(before);
    puts("ok");
    return 0;
}
