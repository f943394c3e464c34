/*
 * jemalloc's interface as ebbmalloc serves it: a program that includes <jemalloc/jemalloc.h>
 * compiles against this header unchanged, and the executable runs on either library.
 *
 * docs/jemalloc.md says what each node and setting does here.
 */
#ifndef EBBMALLOC_JEMALLOC_H
#define EBBMALLOC_JEMALLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../ebbmalloc.h"

/* The release whose interface this is; programs choose by these numbers. */
#define JEMALLOC_VERSION "5.3.0-0-gebbmalloc"
#define JEMALLOC_VERSION_MAJOR 5
#define JEMALLOC_VERSION_MINOR 3
#define JEMALLOC_VERSION_BUGFIX 0
#define JEMALLOC_VERSION_NREV 0
#define JEMALLOC_VERSION_GID "ebbmalloc"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Settings. A program may define malloc_conf as a string; the environment's MALLOC_CONF comes
 * after it, malloc_conf_2_conf_harder comes last.
 */
extern const char *malloc_conf;
extern const char *malloc_conf_2_conf_harder;

/* Where messages go; stderr while it is null. The first argument is malloc_stats_print's. */
extern void (*malloc_message)(void *opaque, const char *text);

/* Reads what a node holds into old_value, then writes new_value to it; either may be null. */
int mallctl(const char *name, void *old_value, size_t *old_length, void *new_value,
            size_t new_length) EBBMALLOC_NOTHROW;
int mallctlnametomib(const char *name, size_t *mib, size_t *mib_length) EBBMALLOC_NOTHROW;
int mallctlbymib(const size_t *mib, size_t mib_length, void *old_value, size_t *old_length,
                 void *new_value, size_t new_length) EBBMALLOC_NOTHROW;

/* Statistics as text, or as JSON with "J" among the options. */
void malloc_stats_print(void (*write)(void *opaque, const char *text), void *opaque,
                        const char *options) EBBMALLOC_NOTHROW;

size_t malloc_usable_size(void *block) EBBMALLOC_NOTHROW;

/*
 * What redis's copy of jemalloc adds, and the macro by which redis knows it: 1 if the block lies in a
 * slab that is worth emptying. A redis that is built against this header has active defragmentation.
 */
#define JEMALLOC_FRAG_HINT
int je_get_defrag_hint(void *block) EBBMALLOC_NOTHROW;

/*
 * Where an arena's memory comes from and goes to: mallctl("arenas.create") and
 * mallctl("arena.<i>.extent_hooks"). Functions that return bool return true on failure.
 */
typedef struct extent_hooks_s extent_hooks_t;

typedef void *(extent_alloc_t)(extent_hooks_t *hooks, void *wanted, size_t size, size_t alignment,
                               bool *zero, bool *commit, unsigned arena);
typedef bool(extent_dalloc_t)(extent_hooks_t *hooks, void *address, size_t size, bool committed,
                              unsigned arena);
typedef void(extent_destroy_t)(extent_hooks_t *hooks, void *address, size_t size, bool committed,
                               unsigned arena);
typedef bool(extent_commit_t)(extent_hooks_t *hooks, void *address, size_t size, size_t offset,
                              size_t length, unsigned arena);
typedef bool(extent_decommit_t)(extent_hooks_t *hooks, void *address, size_t size, size_t offset,
                                size_t length, unsigned arena);
typedef bool(extent_purge_t)(extent_hooks_t *hooks, void *address, size_t size, size_t offset,
                             size_t length, unsigned arena);
typedef bool(extent_split_t)(extent_hooks_t *hooks, void *address, size_t size, size_t first,
                             size_t second, bool committed, unsigned arena);
typedef bool(extent_merge_t)(extent_hooks_t *hooks, void *first, size_t first_size, void *second,
                             size_t second_size, bool committed, unsigned arena);

struct extent_hooks_s {
    extent_alloc_t *alloc;
    extent_dalloc_t *dalloc;
    extent_destroy_t *destroy;
    extent_commit_t *commit;
    extent_decommit_t *decommit;
    extent_purge_t *purge_lazy;
    extent_purge_t *purge_forced;
    extent_split_t *split;
    extent_merge_t *merge;
};

#ifdef __cplusplus
}
#endif

#endif
