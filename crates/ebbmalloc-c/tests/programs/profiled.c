// Allocates known numbers of bytes in functions of known names, for a heap profile to find.
//
//   profiled live        keeps 20 MB in each of three functions, of sizes far apart
//   profiled pingpong    one block at a time, allocated and freed, 200 MB in all
//   profiled kinds       the same with blocks of four functions in turn, 200 MB of each
//   profiled threads     four threads keep 5 MB each, another frees half of it
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define APART __attribute__((noinline))

static void *volatile sink;

static void *filled(void *block, size_t bytes)
{
    if (!block)
        abort();
    memset(block, 1, bytes);
    return block;
}

APART void *small_block(void) { return filled(malloc(100), 100); }
APART void *middle_block(void) { return filled(calloc(1, 5000), 5000); }
APART void *tiny_block(void) { return filled(malloc(20), 20); }
APART void *zeroed_block(void) { return filled(calloc(10, 60), 600); }
APART void *aligned_block(void) { return filled(aligned_alloc(128, 900), 900); }
APART void *large_block(void) { return filled(realloc(malloc(10), 200000), 200000); }

static void keep(void *(*make)(void), int count)
{
    // Linked, so that nothing is lost, and nothing else is allocated.
    for (int i = 0; i < count; i++) {
        void *block = make();
        *(void **)block = sink;
        sink = block;
    }
}

static void *kept[4][50000];

static void *thread(void *argument)
{
    void **mine = argument;
    for (int i = 0; i < 50000; i++)
        mine[i] = small_block();
    return NULL;
}

int main(int count, char **arguments)
{
    const char *what = count > 1 ? arguments[1] : "live";
    if (!strcmp(what, "live")) {
        keep(small_block, 20000000 / 112);
        keep(middle_block, 20000000 / 5120);
        keep(large_block, 20000000 / 200704);
    } else if (!strcmp(what, "pingpong")) {
        for (int i = 0; i < 200000000 / 112; i++)
            free(small_block());
    } else if (!strcmp(what, "kinds")) {
        void *(*const kinds[])(void) = { tiny_block, zeroed_block, aligned_block, middle_block };
        const size_t bytes[] = { 32, 640, 1024, 5120 };
        for (int kind = 0; kind < 4; kind++)
            for (size_t i = 0; i < 200000000 / bytes[kind]; i++)
                free(kinds[kind]());
    } else {
        pthread_t threads[4];
        for (int i = 0; i < 4; i++)
            pthread_create(&threads[i], NULL, thread, kept[i]);
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 50000; j += 2)
                free(kept[i][j]);
    }
    puts("ok");
    return 0;
}
