/* Threads at their edges: destructors, freeing without allocating, coming and going. */
#include "check.h"
#include <stdatomic.h>

/* Threads that allocate and free in the destructors of their thread-specific data, in every round that POSIX grants,
 * from keys made before and after the allocator's own; what such late calls take must be found again by later threads:
 * resident memory does not grow with their number. */
static pthread_key_t early_key, late_key;

struct late {
    int rounds_left;
    pthread_key_t key;
    void *block[40];
};

static void fill_blocks(struct late *mine) {
    for (size_t i = 0; i < 40; i++) mine->block[i] = FILLED(1 + i * 97);
}

static void free_blocks(struct late *mine) {
    for (size_t i = 0; i < 40; i++) RELEASE(mine->block[i], 1 + i * 97);
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

static struct late *prepare(pthread_key_t key) {
    struct late *mine = MUST(malloc(sizeof *mine));
    mine->rounds_left = 3;
    mine->key = key;
    fill_blocks(mine);
    return mine;
}

static void start_late(pthread_key_t key) { CHECK(pthread_setspecific(key, prepare(key)) == 0); }

static void *live_and_end(void *seed) {
    struct churn set;
    churn_start(&set, (uintptr_t)seed);
    start_late(early_key);
    churn_steps(&set, 600);
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
    for (uintptr_t i = 0; i < 20; i++)
        if (i % 4 == 3) thread[i] = started(allocate_only_at_exit, prepare(late_key));
        else thread[i] = started(live_and_end, (void *)(base + i));
    join_all(thread, 20);
}

static void exit_rounds(void) {
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
}

/* 1000 threads alive at once, then 1000 more in turn: each allocates, hands half of it to the next and ends. Memory of
 * threads that are gone must serve new ones. */
struct parcel {
    struct parcel *next;
    size_t size;
};

static _Atomic(struct parcel *) mailbox;
static pthread_barrier_t all_alive;

static void free_list(struct parcel *list) {
    while (list != NULL) {
        struct parcel *next = list->next;
        CHECK(holds(list + 1, list->size));
        free(list);
        list = next;
    }
}

static void live(uintptr_t seed) {
    struct churn set;
    churn_start(&set, seed);
    churn_steps(&set, 400);
    struct parcel *mine = NULL;
    for (int i = 0; i < 32; i++) {
        size_t size = 16 + next_random(&set.random) % 1000;
        struct parcel *parcel = MUST(malloc(sizeof *parcel + size));
        parcel->size = size;
        fill(parcel + 1, size);
        parcel->next = mine;
        mine = parcel;
    }
    free_list(atomic_exchange(&mailbox, mine));
    churn_end(&set);
}

static void *live_alone(void *seed) {
    live((uintptr_t)seed);
    return NULL;
}

static void *live_together(void *seed) {
    void *block = FILLED((uintptr_t)seed + 1);
    pthread_barrier_wait(&all_alive);
    live((uintptr_t)seed + 5000);
    pthread_barrier_wait(&all_alive);
    RELEASE(block, (uintptr_t)seed + 1);
    return NULL;
}

static void come_and_go(void) {
    size_t start = resident_bytes();
    enum { ALIVE = 1000 };
    static pthread_t thread[ALIVE];
    pthread_attr_t attributes;
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstacksize(&attributes, 128 << 10) == 0);
    CHECK(pthread_barrier_init(&all_alive, NULL, ALIVE) == 0);
    for (uintptr_t i = 0; i < ALIVE; i++) CHECK(pthread_create(&thread[i], &attributes, live_together, (void *)i) == 0);
    join_all(thread, ALIVE);
    size_t before = resident_bytes();
    long turns = scaled(1000, 20000);
    for (long i = 0; i < turns; i++) {
        pthread_t next;
        CHECK(pthread_create(&next, &attributes, live_alone, (void *)(i + 9000)) == 0);
        join(next);
    }
    size_t after = resident_bytes();
    free_list(atomic_exchange(&mailbox, NULL));
    /* A megabyte and more was alive in each of the thousand: what the others took came from that. */
    CHECK(after < before + 128 * MIB);
    double limit = now_seconds() + 30;
    while (resident_bytes() > start + 64 * MIB) {
        CHECK(now_seconds() < limit);
        sleep_ms(50);
    }
}

/* One thread only allocates, another only frees: the freer's cache never serves an allocation, so what it holds must
 * flow back; resident memory stays near the queue's size. */
#define QUEUE 4096

static _Atomic(void *) queue[QUEUE];
static size_t queue_size[QUEUE];
static long total;

static void *free_from_queue(void *unused) {
    (void)unused;
    for (long i = 0; i < total; i++) {
        void *block;
        for (long spins = 0; (block = atomic_load(&queue[i % QUEUE])) == NULL; spins++)
            if (spins > 500) sched_yield();
        RELEASE(block, queue_size[i % QUEUE]);
        atomic_store(&queue[i % QUEUE], NULL);
    }
    return NULL;
}

static void free_only(void) {
    total = scaled(600000, 10000000);
    size_t before = resident_bytes();
    pthread_t freer = started(free_from_queue, NULL);
    uint64_t random = 5;
    size_t peak = 0;
    for (long i = 0; i < total; i++) {
        for (long spins = 0; atomic_load(&queue[i % QUEUE]) != NULL; spins++)
            if (spins > 500) sched_yield();
        size_t size = 1 + next_random(&random) % 2000;
        void *block = FILLED(size);
        queue_size[i % QUEUE] = size;
        atomic_store(&queue[i % QUEUE], block);
        if (i % 20000 == 0) {
            size_t seen = resident_bytes();
            if (seen > peak) peak = seen;
        }
    }
    join(freer);
    /* 600 MB pass through; at most 8 MiB are alive at once. */
    CHECK(peak < before + 96 * MIB);
}

/* Slabs of few large slots, whose last pages hold no slot, become whole while the sweep returns just those pages:
 * threads that take and free them in batches, against one that trims without pause. */
enum { TAKERS = 3, BATCH = 40, SLOT_ROUNDS = 1000 };

static atomic_int running = TAKERS;

static void *take_and_free_slots(void *seed) {
    uint64_t random = (uintptr_t)seed;
    char *blocks[BATCH];
    for (int round = 0; round < SLOT_ROUNDS; round++) {
        /* 22 to 64 KiB: each class of these wastes a page or more of its slabs. */
        size_t size = 22000 + next_random(&random) % 40000;
        int count = 1 + (int)(next_random(&random) % BATCH);
        for (int i = 0; i < count; i++) {
            blocks[i] = MUST(malloc(size));
            blocks[i][0] = (char)i;
            blocks[i][size - 1] = (char)i;
        }
        for (int i = 0; i < count; i++) {
            CHECK(blocks[i][0] == (char)i && blocks[i][size - 1] == (char)i);
            free(blocks[i]);
        }
    }
    atomic_fetch_sub(&running, 1);
    return NULL;
}

static void whole_slabs(void) {
    pthread_t threads[TAKERS];
    start_all(threads, TAKERS, take_and_free_slots);
    while (atomic_load(&running) > 0) trim();
    join_all(threads, TAKERS);
}

CASES(CASE(exit_rounds), CASE(come_and_go), CASE(free_only), CASE(whole_slabs))
