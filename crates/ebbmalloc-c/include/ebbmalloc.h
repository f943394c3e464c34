/*
 * ebbmalloc: a memory allocator that gives memory back by itself.
 *
 * A program needs this header only for what its C library does not declare: linking
 * libebbmalloc.a, or loading libebbmalloc.so by LD_PRELOAD, replaces malloc and its kin as they
 * are declared in <stdlib.h> and <malloc.h>. The functions behave as documented there, except:
 *
 *   realloc(p, 0)       frees p and returns NULL, as in glibc
 *   aligned_alloc       any power of two; the size need not be a multiple of it
 *   mallopt             accepts glibc's options (returns 1) and does nothing; 0 for any other
 *   mallinfo, mallinfo2 uordblks: bytes in use; fordblks: free and still resident; arena: both;
 *                       keepcost: what malloc_trim could return; all other fields are 0
 *   malloc_trim         returns all free pages, other threads' caches included; 1 if any went
 *   malloc_info         XML in the shape of glibc's, one heap
 *   unshare, setns      as in the C library, with the allocator's own thread stopped meanwhile
 *   prctl               as in the C library; PR_SET_SECCOMP and PR_SET_NO_NEW_PRIVS end that thread
 *                       for good, and its work is done by calls of malloc and free
 *   madvise             as in the C library; MADV_HUGEPAGE on a block ends with the block
 *
 * Settings come from the environment variable EBB_CONF.
 */
#ifndef EBBMALLOC_H
#define EBBMALLOC_H

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#if defined(__has_include)
#if __has_include(<malloc.h>)
#include <malloc.h>
#endif
#endif

/* glibc promises that its functions do not throw, and C++ wants to read the same here. */
#ifdef __THROW
#define EBBMALLOC_NOTHROW __THROW
#else
#define EBBMALLOC_NOTHROW
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Frees a block of malloc, calloc or realloc that was asked for with this size (C23). */
void free_sized(void *block, size_t size) EBBMALLOC_NOTHROW;

/* Frees a block of aligned_alloc that was asked for with these arguments (C23). */
void free_aligned_sized(void *block, size_t alignment, size_t size) EBBMALLOC_NOTHROW;

/* The same as free. */
void cfree(void *block) EBBMALLOC_NOTHROW;

/*
 * jemalloc's extended functions. The flags are added up: an alignment, zeros, a cache made by
 * mallctl("tcache.create"), an arena made by mallctl("arenas.create").
 */
#ifndef MALLOCX_LG_ALIGN
#define MALLOCX_LG_ALIGN(la) ((int)(la))
#define MALLOCX_ALIGN(a) ((int)__builtin_ctzll((unsigned long long)(a)))
#define MALLOCX_ZERO ((int)0x40)
#define MALLOCX_TCACHE(tc) ((int)(((tc) + 2) << 8))
#define MALLOCX_TCACHE_NONE MALLOCX_TCACHE(-1)
#define MALLOCX_ARENA(a) ((((int)(a)) + 1) << 20)
#define MALLCTL_ARENAS_ALL 4096
#define MALLCTL_ARENAS_DESTROYED 4097
#endif

void *mallocx(size_t size, int flags) EBBMALLOC_NOTHROW;
void *rallocx(void *block, size_t size, int flags) EBBMALLOC_NOTHROW;
/* In place, to at least `size` and up to `size + extra` bytes; returns the usable size. */
size_t xallocx(void *block, size_t size, size_t extra, int flags) EBBMALLOC_NOTHROW;
size_t sallocx(const void *block, int flags) EBBMALLOC_NOTHROW;
void dallocx(void *block, int flags) EBBMALLOC_NOTHROW;
void sdallocx(void *block, size_t size, int flags) EBBMALLOC_NOTHROW;
/* The usable size that mallocx would give. */
size_t nallocx(size_t size, int flags) EBBMALLOC_NOTHROW;

#ifndef __GLIBC__
struct mallinfo {
    int arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};
struct mallinfo mallinfo(void) EBBMALLOC_NOTHROW;
int malloc_trim(size_t pad) EBBMALLOC_NOTHROW;
int mallopt(int option, int value) EBBMALLOC_NOTHROW;
void malloc_stats(void) EBBMALLOC_NOTHROW;
int malloc_info(int options, FILE *stream) EBBMALLOC_NOTHROW;
void *pvalloc(size_t size) EBBMALLOC_NOTHROW;
#endif

/* mallinfo2 came with glibc 2.33. */
#if !defined(__GLIBC__) || (__GLIBC__ == 2 && __GLIBC_MINOR__ < 33)
struct mallinfo2 {
    size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};
struct mallinfo2 mallinfo2(void) EBBMALLOC_NOTHROW;
#endif

#ifdef __cplusplus
}
#endif

#endif
