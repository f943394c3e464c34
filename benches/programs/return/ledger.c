/* Ledgers: reserved far larger than needed (untouched pages cost nothing), written
 * front to back, so the resident part is a prefix. Not for two threads at once. */
#include "return/return.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t round_to_page(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

static void *map_pages(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
        dprintf(2, "return: no room for the ledger\n");
        _exit(3);
    }
    /* A huge page would make more resident than the prefix that is counted. */
    madvise(at, bytes, MADV_NOHUGEPAGE);
    return at;
}

void ledger_map(struct ledger *ledger, size_t capacity)
{
    ledger->entries = map_pages(round_to_page(capacity * sizeof(struct entry)));
    ledger->count = 0;
    ledger->mark = 0;
    ledger->capacity = capacity;
}

void ledger_allocate(struct ledger *ledger, size_t size_bytes)
{
    unsigned char *at = ledger->count < ledger->capacity ? malloc(size_bytes) : NULL;
    if (!at) {
        dprintf(2, "return: malloc(%zu) failed or the ledger is full\n", size_bytes);
        _exit(3);
    }
    uint32_t tag = (uint32_t)(ledger->count * 2654435761u >> 8);
    memset(at, (unsigned char)tag, size_bytes);
    ledger->entries[ledger->count++] = (struct entry){at, (uint32_t)size_bytes, tag};
}

size_t ledger_free(struct entry *entry)
{
    unsigned char tag = (unsigned char)entry->tag;
    size_t wrong = (entry->at[0] != tag) + (entry->at[entry->size_bytes - 1] != tag);
    free(entry->at);
    entry->at = NULL;
    return wrong;
}

void ledger_squeeze(struct ledger *ledger, size_t first)
{
    size_t kept = first;
    for (size_t i = first; i < ledger->count; i++)
        if (ledger->entries[i].at)
            ledger->entries[kept++] = ledger->entries[i];
    ledger->count = kept;
}

void ledger_compact(struct ledger *ledger)
{
    ledger_squeeze(ledger, 0);
    size_t used = round_to_page(ledger->count * sizeof(struct entry));
    size_t mapped = round_to_page(ledger->capacity * sizeof(struct entry));
    if (used < mapped)
        munmap((char *)ledger->entries + used, mapped - used);
    ledger->capacity = used / sizeof(struct entry);
}

size_t ledger_live_bytes(const struct ledger *ledger)
{
    size_t live = 0;
    for (size_t i = 0; i < ledger->count; i++)
        live += ledger->entries[i].at ? ledger->entries[i].size_bytes : 0;
    return live;
}

size_t ledger_own_bytes(const struct ledger *ledger)
{
    return round_to_page(ledger->count * sizeof(struct entry));
}

size_t ledger_wrong_bytes(const struct ledger *ledger)
{
    size_t wrong = 0;
    for (size_t i = 0; i < ledger->count; i++) {
        const struct entry *entry = &ledger->entries[i];
        for (size_t byte = 0; entry->at && byte < entry->size_bytes; byte++)
            wrong += entry->at[byte] != (unsigned char)entry->tag;
    }
    return wrong;
}

static int by_address(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;
    return (a->at > b->at) - (a->at < b->at);
}

size_t ledger_pages_touched(const struct ledger *ledgers, size_t count, size_t page_bytes)
{
    size_t total = 0;
    for (size_t i = 0; i < count; i++)
        total += ledgers[i].count;
    if (total == 0)
        return 0;
    size_t bytes = round_to_page(total * sizeof(struct entry));
    struct entry *sorted = map_pages(bytes);
    size_t length = 0;
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < ledgers[i].count; j++)
            if (ledgers[i].entries[j].at)
                sorted[length++] = ledgers[i].entries[j];
    qsort(sorted, length, sizeof *sorted, by_address);

    size_t pages = 0;
    uintptr_t next_uncounted = 0;
    for (size_t i = 0; i < length; i++) {
        uintptr_t first = (uintptr_t)sorted[i].at / page_bytes;
        uintptr_t last = ((uintptr_t)sorted[i].at + sorted[i].size_bytes - 1) / page_bytes;
        if (first < next_uncounted)
            first = next_uncounted;
        if (first <= last) {
            pages += last - first + 1;
            next_uncounted = last + 1;
        }
    }
    munmap(sorted, bytes);
    return pages;
}
