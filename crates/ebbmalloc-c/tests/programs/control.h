/* The control tree, and memory that must read as zeros. Included first. */
#pragma once
#include "check.h"
#include <malloc.h>
#include <stdarg.h>
#include <stdbool.h>

#ifndef JEMALLOC_VERSION
extern int mallctl(const char *, void *, size_t *, void *, size_t) __attribute__((weak));
#endif

#define KIB ((size_t)1 << 10)

/* A name with indices in it. The result is good until the thread's sixty-fourth next call. */
static inline const char *named(const char *format, ...) {
    static __thread char names[64][128];
    static __thread unsigned next;
    char *name = names[next++ % 64];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(name, sizeof names[0], format, arguments);
    va_end(arguments);
    CHECK(length > 0 && (size_t)length < sizeof names[0]);
    return name;
}

/* Reports a node by its name: CHECK alone would only show the macro below. */
static inline void node_failed(const char *file, int line, const char *name, int error, size_t length) {
    char text[256];
    snprintf(text, sizeof text, "%s:%d: failed: %s: error %d (%s), length %zu\n", file, line, name, error,
             error == 0 ? "none" : strerror(error), length);
    say(text);
    _exit(99);
}

/* Reads a node of this type; its length must be the type's. */
#define GET(type, name)                                                                                                \
    ({                                                                                                                 \
        type got_;                                                                                                     \
        size_t length_ = sizeof got_;                                                                                  \
        const char *name_ = (name);                                                                                    \
        int error_ = mallctl(name_, &got_, &length_, NULL, 0);                                                         \
        if (error_ != 0 || length_ != sizeof got_) node_failed(__FILE__, __LINE__, name_, error_, length_);            \
        got_;                                                                                                          \
    })

/* Writes a value of this type to a node. */
#define SET(type, name, value)                                                                                         \
    do {                                                                                                               \
        type new_ = (value);                                                                                           \
        const char *name_ = (name);                                                                                    \
        int error_ = mallctl(name_, NULL, NULL, &new_, sizeof new_);                                                   \
        if (error_ != 0) node_failed(__FILE__, __LINE__, name_, error_, sizeof new_);                                  \
    } while (0)

/* Writes a value and returns the one before it, in one call. */
#define SWAP(type, name, value)                                                                                        \
    ({                                                                                                                 \
        type old_;                                                                                                     \
        type new_ = (value);                                                                                           \
        size_t length_ = sizeof old_;                                                                                  \
        const char *name_ = (name);                                                                                    \
        int error_ = mallctl(name_, &old_, &length_, &new_, sizeof new_);                                              \
        if (error_ != 0 || length_ != sizeof old_) node_failed(__FILE__, __LINE__, name_, error_, length_);            \
        old_;                                                                                                          \
    })

/* A node without a value. */
#define CALL(name)                                                                                                     \
    do {                                                                                                               \
        const char *name_ = (name);                                                                                    \
        int error_ = mallctl(name_, NULL, NULL, NULL, 0);                                                              \
        if (error_ != 0) node_failed(__FILE__, __LINE__, name_, error_, 0);                                            \
    } while (0)

/* Takes a new set of statistics. */
static inline void refresh(void) { SET(uint64_t, "epoch", 1); }

static inline bool reads_zero(const void *pointer, size_t from, size_t to) {
    const unsigned char *block = (const unsigned char *)pointer;
    for (size_t i = from; i < to; i++)
        if (block[i] != 0) return false;
    return true;
}

static inline bool is_aligned(const void *block, size_t alignment) { return ((uintptr_t)block & (alignment - 1)) == 0; }

/* Dirty memory of every kind, so that zeros afterwards are somebody's work. */
static inline void soil(void) {
    void *held[200];
    for (size_t i = 0; i < 200; i++) {
        size_t size = 1 + i * i * 8;
        held[i] = MUST(malloc(size));
        memset(held[i], 0xa5, size);
    }
    for (size_t i = 0; i < 200; i++) free(held[i]);
}
