/* Threads that allocate and free in the destructors of their thread-specific data, in every round
 * that POSIX grants, from keys made before and after the allocator's own; what such late calls
 * take must be found again by later threads: resident memory does not grow with their number. */
#include "check.h"

static pthread_key_t early_key, late_key;

struct late {
    int rounds_left;
    pthread_key_t key;
    void *block[40];
};

static void fill_blocks(struct late *mine) {
    for (size_t i = 0; i < 40; i++) {
        mine->block[i] = malloc(1 + i * 97);
        CHECK(mine->block[i] != NULL);
        fill(mine->block[i], 1 + i * 97);
    }
}

static void free_blocks(struct late *mine) {
    for (size_t i = 0; i < 40; i++) {
        CHECK(holds(mine->block[i], 1 + i * 97));
        free(mine->block[i]);
    }
}

/* Runs PTHREAD_DESTRUCTOR_ITERATIONS times: in the last rounds the allocator's destructor has run. */
static void on_exit_round(void *value) {
    struct late *mine = value;
    free_blocks(mine);
    if (mine->rounds_left-- > 0) {
        fill_blocks(mine);
        CHECK(pthread_setspecific(mine->key, mine) == 0);
        return;
    }
    free(mine);
}

/* Before main, so that this key may well be older than the allocator's. */
__attribute__((constructor(101))) static void make_early_key(void) {
    CHECK(pthread_key_create(&early_key, on_exit_round) == 0);
}

static struct late *start_late(pthread_key_t key) {
    struct late *mine = malloc(sizeof *mine);
    CHECK(mine != NULL);
    mine->rounds_left = 3;
    mine->key = key;
    fill_blocks(mine);
    CHECK(pthread_setspecific(key, mine) == 0);
    return mine;
}

static void *live_and_end(void *seed) {
    struct churn set;
    churn_start(&set, (uintptr_t)seed);
    start_late(early_key);
    for (int i = 0; i < 600; i++) churn_step(&set);
    start_late(late_key);
    churn_end(&set);
    return NULL;
}

/* The first allocation of this thread is made by a destructor. */
static void *allocate_only_at_exit(void *prepared) {
    CHECK(pthread_setspecific(late_key, prepared) == 0);
    return NULL;
}

static void run_batch(uintptr_t base) {
    pthread_t thread[20];
    static struct late *prepared[20];
    for (uintptr_t i = 0; i < 20; i++) {
        if (i % 4 == 3) {
            prepared[i] = malloc(sizeof *prepared[i]);
            CHECK(prepared[i] != NULL);
            prepared[i]->rounds_left = 3;
            prepared[i]->key = late_key;
            fill_blocks(prepared[i]);
            CHECK(pthread_create(&thread[i], NULL, allocate_only_at_exit, prepared[i]) == 0);
        } else {
            CHECK(pthread_create(&thread[i], NULL, live_and_end, (void *)(base + i)) == 0);
        }
    }
    for (size_t i = 0; i < 20; i++) CHECK(pthread_join(thread[i], NULL) == 0);
}

int main(void) {
    require_preload();
    free(malloc(10));
    CHECK(pthread_key_create(&late_key, on_exit_round) == 0);
    for (uintptr_t round = 0; round < 10; round++) run_batch(round * 100 + 1);
    size_t before = resident_bytes();
    long rounds = scaled(60, 1000);
    for (long round = 0; round < rounds; round++) run_batch((uintptr_t)round * 100 + 7);
    size_t after = resident_bytes();
    /* 1200 threads: 64 KiB lost in each would be 75 MiB. */
    if (after > before + 40 * MIB) {
        char line[128];
        snprintf(line, sizeof line, "grew from %zu to %zu KiB\n", before >> 10, after >> 10);
        say(line);
    }
    CHECK(after <= before + 40 * MIB);
    return passed();
}
