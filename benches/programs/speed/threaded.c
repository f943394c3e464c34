/* Cases in which blocks or threads come and go between threads. */
#include "speed/cases.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "random.h"

/* One producer, one consumer. Head and tail lie on cache lines of their own, so that
 * the ring costs little compared with the request. */
enum { RING = 1024 };
struct ring {
    _Alignas(64) atomic_uint_fast64_t head; /* written by the producer */
    _Alignas(64) atomic_uint_fast64_t tail; /* written by the consumer */
    _Alignas(64) void *block[RING];
};

static void *prepare_rings(const struct team *team)
{
    struct ring *rings = aligned_alloc(64, team->threads / 2 * sizeof *rings);
    if (!rings)
        abort();
    for (unsigned i = 0; i < team->threads / 2; i++) {
        atomic_init(&rings[i].head, 0);
        atomic_init(&rings[i].tail, 0);
    }
    return rings;
}

/* cross: even threads allocate, odd threads free. */
static uint64_t run_cross(const struct team *team, unsigned index)
{
    struct ring *ring = (struct ring *)team->shared + index / 2;
    struct random_state random = random_seeded(index + 1);
    if (index % 2 == 0) {
        for (uint64_t sent = 0; sent < team->rounds; sent++) {
            void *block = must_allocate(32 + random_below(&random, 993));
            /* Acquire: the consumer has read the slot before it moved the tail. */
            while (sent - atomic_load_explicit(&ring->tail, memory_order_acquire) >= RING)
                sched_yield();
            ring->block[sent % RING] = block;
            atomic_store_explicit(&ring->head, sent + 1, memory_order_release);
        }
        return team->rounds;
    }
    for (uint64_t taken = 0; taken < team->rounds; taken++) {
        /* Acquire: pairs with the producer's release of the filled slot. */
        while (atomic_load_explicit(&ring->head, memory_order_acquire) == taken)
            sched_yield();
        free(ring->block[taken % RING]);
        atomic_store_explicit(&ring->tail, taken + 1, memory_order_release);
    }
    return 0;
}

enum { CHURN_BLOCKS = 200 };

static void *churn_thread(void *argument)
{
    void *block[CHURN_BLOCKS];
    struct random_state random = random_seeded((uintptr_t)argument);
    for (int i = 0; i < CHURN_BLOCKS; i++)
        block[i] = must_allocate(16 + random_below(&random, 1009));
    for (int i = 0; i < CHURN_BLOCKS; i++)
        free(block[i]);
    return NULL;
}

/* churn: threads that live for 200 blocks each, started one after another. */
static uint64_t run_churn(const struct team *team, unsigned index)
{
    (void)index;
    for (uint64_t round = 0; round < team->rounds; round++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, churn_thread, (void *)(uintptr_t)(round + 1)) != 0)
            abort();
        pthread_join(thread, NULL);
    }
    return team->rounds;
}

enum { LARSON_LIVE = 2000, LARSON_TURN = 50000 };

struct larson {
    void *block[LARSON_LIVE];
    struct random_state random;
};

static void *larson_turn(void *argument)
{
    struct larson *larson = argument;
    for (int i = 0; i < LARSON_TURN; i++) {
        uint32_t slot = random_below(&larson->random, LARSON_LIVE);
        free(larson->block[slot]);
        larson->block[slot] = must_allocate(8 + random_below(&larson->random, 1017));
    }
    return NULL;
}

/* larson: a server's threads, each replacing blocks of 8 B to 1 KiB that the thread
 * before it left, and then handing them on. */
static uint64_t run_larson(const struct team *team, unsigned index)
{
    struct larson *larson = calloc(1, sizeof *larson);
    if (!larson)
        abort();
    larson->random = random_seeded(index + 1);
    for (uint64_t round = 0; round < team->rounds; round++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, larson_turn, larson) != 0)
            abort();
        pthread_join(thread, NULL);
    }
    for (int i = 0; i < LARSON_LIVE; i++)
        free(larson->block[i]);
    free(larson);
    return team->rounds * LARSON_TURN;
}

const struct speed_case threaded_cases[] = {
    {"cross", "one thread allocates 32 B-1 KiB, another frees", 4000000, 2, prepare_rings, run_cross},
    {"churn", "a thread that lives for 200 blocks", 10000, 1, NULL, run_churn},
    {"larson", "2000 blocks of 8 B-1 KiB a thread, replaced and handed to the next thread", 160, 1, NULL, run_larson},
};
const size_t threaded_case_count = sizeof threaded_cases / sizeof *threaded_cases;
