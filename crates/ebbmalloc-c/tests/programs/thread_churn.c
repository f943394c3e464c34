/* 1000 threads alive at once, then 1000 more in turn: each allocates, hands half of it to the next
 * and ends. Memory of threads that are gone must serve those that come. */
#include "check.h"
#include <stdatomic.h>

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
    for (int i = 0; i < 400; i++) churn_step(&set);
    struct parcel *mine = NULL;
    for (int i = 0; i < 32; i++) {
        size_t size = 16 + next_random(&set.random) % 1000;
        struct parcel *parcel = malloc(sizeof *parcel + size);
        CHECK(parcel != NULL);
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
    void *block = malloc((uintptr_t)seed + 1);
    CHECK(block != NULL);
    fill(block, (uintptr_t)seed + 1);
    pthread_barrier_wait(&all_alive);
    live((uintptr_t)seed + 5000);
    pthread_barrier_wait(&all_alive);
    CHECK(holds(block, (uintptr_t)seed + 1));
    free(block);
    return NULL;
}

int main(void) {
    require_preload();
    size_t start = resident_bytes();
    enum { ALIVE = 1000 };
    static pthread_t thread[ALIVE];
    pthread_attr_t attributes;
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstacksize(&attributes, 128 << 10) == 0);
    CHECK(pthread_barrier_init(&all_alive, NULL, ALIVE) == 0);
    for (uintptr_t i = 0; i < ALIVE; i++)
        CHECK(pthread_create(&thread[i], &attributes, live_together, (void *)i) == 0);
    for (size_t i = 0; i < ALIVE; i++) CHECK(pthread_join(thread[i], NULL) == 0);
    size_t before = resident_bytes();
    long turns = scaled(1000, 20000);
    for (long i = 0; i < turns; i++) {
        pthread_t next;
        CHECK(pthread_create(&next, &attributes, live_alone, (void *)(i + 9000)) == 0);
        CHECK(pthread_join(next, NULL) == 0);
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
    return passed();
}
