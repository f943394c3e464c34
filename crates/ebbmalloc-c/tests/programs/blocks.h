/* Bursts: many blocks allocated and freed, and the wait until their memory is returned as well. Included after check.h
 * by the programs that look at resident memory. */
#pragma once

/* Room for pointers that is not the heap's. */
static inline void **pointers(size_t count) {
    void **block =
        mmap(NULL, count * sizeof *block, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    CHECK(block != MAP_FAILED);
    return block;
}

/* Takes blocks of `smallest` bytes, one more, and so on for `sizes` sizes in turn; writes them. */
static inline void take(void **block, size_t count, size_t smallest, size_t sizes) {
    for (size_t i = 0; i < count; i++) {
        block[i] = MUST(malloc(smallest + i % sizes));
        memset(block[i], 1, smallest + i % sizes);
    }
}

static inline void give_back(void **block, size_t count) {
    for (size_t i = 0; i < count; i++) free(block[i]);
}

/* Goes on allocating a little, `steps` at a time, until no more than `bytes` are resident: without a purger it is slow
 * operations that return memory. */
static inline void churn_until_resident(size_t bytes, int steps, double seconds) {
    double limit = now_seconds() + seconds;
    struct churn set;
    churn_start(&set, 11);
    while (resident_bytes() > bytes) {
        CHECK(now_seconds() < limit);
        churn_steps(&set, steps);
        sleep_ms(50);
    }
    churn_end(&set);
}
