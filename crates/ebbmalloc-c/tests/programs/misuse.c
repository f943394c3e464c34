/* One misuse of the heap, as the arguments say: KIND SIZE [DISTANCE] [other]. Prints "undetected" if nothing ended it.
 * With "other" a second thread makes the mistake. What a program reads or is given is no misuse of its own: those kinds
 * print "undetected" only if the allocator let old contents, or the old block, be seen.
 *
 * planted_KIND SEED: the misuse is in the middle of random requests whose blocks are checked (check.h's churn). The words
 * with which strict mode has to end it are printed before. */
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

static struct churn set;
static size_t below(size_t end) { return (size_t)next_random(&set.random) % end; }

static void with_sizes(const char *function, char *first) {
    void *freeing = MUST(dlsym(RTLD_DEFAULT, function));
    size_t wrong = size + 1 + below(100);
    if (function[0] == 'f') {
        printf("expected free of %p with size %zu: %zu byte\n", first, wrong, size);
        fflush(stdout);
        ((void (*)(void *, size_t))freeing)(first, wrong);
    } else {
        printf("expected operator delete%s of %p: %zu byte\n", strchr(function, 'a') ? "[]" : "", first, size);
        fflush(stdout);
        ((void (*)(void *))freeing)(first);
    }
}

static void free_at(char *address, const char *words, char *first) {
    printf(words, address, address - first, first, size);
    fflush(stdout);
    free(address);
}

/* Makes the mistake with the block in a slot of the set; a page of a large block faults. */
static void plant(size_t slot) {
    static char data[64];
    char *first = set.block[slot], on_stack[64];
    size = set.size[slot];
    memset(first, 'A', size);
    fill(first, size);
    const char *faults = size < 65000 ? "" : "|SIGSEGV";
    if (is("planted_double_free")) {
        set.block[slot] = NULL;
        free(first);
        for (size_t more = below(4); more > 0; more--) block = malloc(1 + below(1000));
        free_at(first, "expected double free of %1$p: %4$zu byte\n", first);
    } else if (is("planted_invalid")) {
        char *mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        char *wrong[] = {data, on_stack, mapped, (char *)16 + below(1000) * 16};
        free_at(wrong[below(4)] + below(3) * 16, "expected free of %1$p: not from this allocator\n", first);
    } else if (is("planted_interior")) {
        /* Of a longer block only the first 64 KiB are looked at. */
        size_t into = 1 + below((size < 60000 ? size : 60000) - 1);
        free_at(first + into, "expected free of %1$p: %2$td byte\n", first);
    } else if (is("planted_mismatch")) {
        static const char *const function[] = {"free_sized", "_ZdlPv", "_ZdaPv"};
        with_sizes(function[below(3)], first);
    } else if (is("planted_overflow")) {
        printf("expected bytes overwritten after %p: %zu byte%s\n", first, size, faults);
        fflush(stdout);
        first[size] ^= (char)(1 + below(255));
    } else if (is("planted_underflow")) {
        printf("expected bytes overwritten before %1$p|of %1$p: no block any more, or the bytes before it were\n", first);
        fflush(stdout);
        first[-1] ^= (char)(1 + below(255));
    } else {
        set.block[slot] = NULL;
        free(first);
        size_t page = ((uintptr_t)first + 4095) / 4096 * 4096 - (uintptr_t)first;
        size_t at = size < 65000 ? below(size) : page + below(4096);
        printf("expected written after free: %p: %zu byte%s\n", first, size, faults);
        fflush(stdout);
        first[at] = 'A';
    }
}

static volatile int ends;
static void *another(void *seed) {
    while (!ends) churn((uint64_t)seed, 1000);
    return NULL;
}

static void planted(uint64_t seed) {
    churn_start(&set, seed + 1);
    pthread_t thread = 0;
    if (seed % 2) thread = started(another, (void *)(seed + 2));
    churn_steps(&set, 2000 + (long)below(3000));
    size_t slot = below(256);
    /* Two bytes or more, so that one is inside. */
    while (set.block[slot] == NULL || set.size[slot] < 2) slot = below(256);
    if (below(4) == 0) {
        RELEASE(set.block[slot], set.size[slot]);
        set.size[slot] = 70000 + below(1000000);
        set.block[slot] = FILLED(set.size[slot]);
    }
    plant(slot);
    churn_steps(&set, 30000);
    churn_end(&set);
    ends = 1;
    if (thread) join(thread);
}

int main(int count, char **arguments) {
    CHECK(count >= 3);
    kind = arguments[1];
    size = strtoul(arguments[2], NULL, 10);
    distance = count > 3 ? strtol(arguments[3], NULL, 10) : 0;
    if (strncmp(kind, "planted_", 8) == 0) {
        planted(size);
        undetected();
        return 0;
    }
    char *first = is("read_new") || strstr(kind, "_nothing") ? NULL : malloc(size);
    if (count > 4) join(started(misuse, first));
    else misuse(first);
    undetected();
    return 0;
}
