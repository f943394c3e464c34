/* The cases whose throughput is measured. A case runs in one thread of `threads`;
 * all of them start together. It returns the operations it did, where one operation
 * is what its description says. */
#ifndef BENCH_SPEED_CASES_H
#define BENCH_SPEED_CASES_H

#include <stddef.h>
#include <stdint.h>

struct team {
    unsigned threads;
    uint64_t rounds; /* of each thread */
    void *shared;    /* made by the case's prepare */
};

struct speed_case {
    const char *name;
    const char *what;
    uint64_t rounds; /* about half a second here, by one thread */
    unsigned threads_multiple;
    void *(*prepare)(const struct team *team);
    uint64_t (*run)(const struct team *team, unsigned index);
};

extern const struct speed_case single_cases[], threaded_cases[];
extern const size_t single_case_count, threaded_case_count;

/* malloc that ends the program on failure and writes the block's first and last
 * byte: memory that is not written costs an allocator nothing. */
void *must_allocate(size_t size_bytes);

#endif
