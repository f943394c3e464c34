/* One misuse of the heap, as the arguments say: KIND SIZE [DISTANCE] [other]. Prints "undetected" if nothing ended it.
 * With "other" a second thread makes the mistake. What a program reads or is given is no misuse of its own: those kinds
 * print "undetected" only if the allocator let old contents, or the old block, be seen. */
#include "check.h"

static const char *kind;
static size_t size;
static long distance;
/* volatile: the compiler must not see the misuse. */
static char *volatile block;
static char zeros[256 * 1024 + 64];

static int is(const char *name) { return strcmp(kind, name) == 0; }

/* As programs print: the first line makes libc allocate a buffer. */
static void undetected(void) {
    puts("undetected");
    fflush(stdout);
}

static void again(int times) {
    for (int i = 0; i < times; i++) {
        block = malloc(size);
        free(block);
    }
}

static int shows_bytes(const char *bytes) {
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != 0) return 1;
    return 0;
}

/* Frees what is no block. */
static void free_wrongly(char *first) {
    char on_stack[size];
    volatile char *from_alloca = alloca(size);
    from_alloca[0] = on_stack[0] = 0;
    if (is("free_wild")) block = (char *)1;
    if (is("free_stack")) block = on_stack;
    if (is("free_alloca")) block = (char *)from_alloca;
    if (is("free_interior")) block = first + distance;
    free(block);
}

static void free_again(char *first) {
    char *volatile second = malloc(size);
    free(first);
    if (is("free_again_later")) again(1024);
    if (is("free_again_interleaved")) free(second);
    if (is("free_again_reused")) second = malloc(size);
    free(first);
    if (is("free_again_reused")) free(second);
    if (is("free_again_then_loop")) again(256 * 1024);
}

static void write_beside(char *first) {
    if (is("store_beside")) {
        first[distance] ^= 'A';
        free(first);
    }
    if (is("copy_beside")) memcpy(distance > 0 ? first : first + distance, zeros, size + (distance > 0 ? distance : 0));
    if (is("copy_far")) memcpy(first + distance, zeros, size);
}

static void use_after_free(char *first) {
    memset(first, 'A', size);
    free(first);
    if (is("read_freed") && !shows_bytes(first)) exit(0);
    if (is("write_freed") || is("write_freed_then_loop")) memset(first, 'A', size);
    if (is("write_freed_then_loop")) again(256 * 1024);
    if (is("reuse") && malloc(size) != first) exit(0);
    if (is("reuse_smaller") && malloc(size / 2) != first) exit(0);
}

static void read_new(void) {
    enum { BLOCKS = 4096 };
    static char *old[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) old[i] = memset(malloc(size), 'A', size);
    for (int i = 0; i < BLOCKS; i++) free(old[i]);
    if (!shows_bytes(malloc(size))) exit(0);
}

static void use_nothing(void) {
    char *volatile none = malloc(0);
    if (is("write_nothing") || is("write_nothing_free")) *none = 'A';
    if (is("read_nothing") || is("read_nothing_free")) putchar(*none);
    if (is("write_nothing_free") || is("read_nothing_free")) free(none);
}

static void after_realloc(char *first) {
    char *volatile moved = realloc(first, 2 * size + 1024);
    if (is("write_after_realloc")) {
        memset(first, 'B', size);
        free(moved);
        again(10000);
    }
    if (is("free_after_realloc")) free(first);
}

static void *misuse(void *first) {
    if (strncmp(kind, "free_again", 10) == 0) free_again(first);
    else if (strstr(kind, "after_realloc")) after_realloc(first);
    else if (strncmp(kind, "free_", 5) == 0) free_wrongly(first);
    else if (strstr(kind, "_beside") || is("copy_far")) write_beside(first);
    else if (strstr(kind, "_nothing")) use_nothing();
    else if (is("read_new")) read_new();
    else if (is("execute")) {
        memcpy(first, "\x90\x90\x90\x90\xc3", 6);
        ((void (*)(void))first)();
    } else if (is("impossible")) {
        if (malloc((size_t)-2) == NULL) exit(0);
    } else if (!is("realloc_reuse")) use_after_free(first);
    /* "realloc_reuse": the program looks at its own old pointer, which no allocator can prevent. */
    return NULL;
}

int main(int count, char **arguments) {
    CHECK(count >= 3);
    kind = arguments[1];
    size = strtoul(arguments[2], NULL, 10);
    distance = count > 3 ? strtol(arguments[3], NULL, 10) : 0;
    char *first = is("read_new") || strstr(kind, "_nothing") ? NULL : malloc(size);
    if (count > 4) join(started(misuse, first));
    else misuse(first);
    undetected();
    return 0;
}
