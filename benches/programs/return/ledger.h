/* The benchmark's own record of its objects, kept out of the heap under test.
 *
 * Entries lie in a private mapping whose pages are counted, so that they can be
 * subtracted from what is measured. Each object is filled with its tag; a byte that
 * reads otherwise is memory that the allocator lost or gave out twice. */
#ifndef BENCH_RETURN_LEDGER_H
#define BENCH_RETURN_LEDGER_H

#include <stddef.h>
#include <stdint.h>

struct entry {
    unsigned char *at; /* null once freed */
    uint32_t size_bytes;
    uint32_t tag; /* low byte fills the object */
};

struct ledger {
    struct entry *entries;
    size_t count;
    size_t capacity;
    size_t mark; /* where the present phase begins; the patterns' own use */
};

void ledger_map(struct ledger *ledger, size_t capacity);

/* Allocates, fills every byte and records. Ends the program when memory is short. */
void ledger_allocate(struct ledger *ledger, size_t size_bytes);

/* Checks the object's first and last byte and frees it. Returns wrong bytes seen. */
size_t ledger_free(struct entry *entry);

/* Squeezes freed entries out, from entry `first` on. */
void ledger_squeeze(struct ledger *ledger, size_t first);

/* Squeezes all freed entries out and unmaps the pages that are no longer needed. */
void ledger_compact(struct ledger *ledger);

/* Bytes of requests in the ledger, and bytes of its own that are resident. */
size_t ledger_live_bytes(const struct ledger *ledger);
size_t ledger_own_bytes(const struct ledger *ledger);

/* Wrong bytes over every byte of every object still recorded. */
size_t ledger_wrong_bytes(const struct ledger *ledger);

/* The number of pages that hold at least one byte of a recorded object, over all
 * ledgers: what no return of whole pages can go below at these addresses. */
size_t ledger_pages_touched(const struct ledger *ledgers, size_t count, size_t page_bytes);

#endif
