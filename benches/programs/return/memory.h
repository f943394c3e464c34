/* Reads this process's own resident memory, without touching the heap. */
#ifndef BENCH_RETURN_MEMORY_H
#define BENCH_RETURN_MEMORY_H

struct memory_reading {
    long rss_bytes;       /* Rss of smaps_rollup: a walk of the page tables, exact */
    long anonymous_bytes; /* its anonymous part */
    long lazy_free_bytes; /* given to MADV_FREE: still resident until memory is short */
    long statm_bytes;     /* what top shows; lags by some pages per CPU on new kernels */
};

struct memory_reading memory_read(void);

#endif
