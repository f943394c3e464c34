/* Random numbers of the benchmark programs: a generator with 64 bits of state
 * (xorshift64*), so a seed gives the same sizes and the same survivors under
 * every allocator. It never touches the heap. */
#ifndef BENCH_RANDOM_H
#define BENCH_RANDOM_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

struct random_state {
    uint64_t bits;
};

/* Splitmix spreads small seeds (1, 2, 3) over the whole state. */
static inline struct random_state random_seeded(uint64_t seed)
{
    uint64_t z = seed + 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    struct random_state state = {z ? z : 1};
    return state;
}

static inline uint64_t random_next(struct random_state *state)
{
    uint64_t x = state->bits;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    state->bits = x;
    return x * 0x2545f4914f6cdd1du;
}

/* Uniform in [0, 1). */
static inline double random_unit(struct random_state *state)
{
    return (double)(random_next(state) >> 11) * 0x1.0p-53;
}

/* Uniform in [0, limit). The bias of a multiplication is below 2^-32 here. */
static inline uint32_t random_below(struct random_state *state, uint32_t limit)
{
    return (uint32_t)(((random_next(state) >> 32) * limit) >> 32);
}

/* A size whose logarithm is uniform in [log low, log high]. */
static inline size_t random_log_uniform(struct random_state *state, double low_bytes, double high_bytes)
{
    return (size_t)(low_bytes * exp(random_unit(state) * log(high_bytes / low_bytes)));
}

#endif
