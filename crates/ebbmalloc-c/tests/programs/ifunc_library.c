/* A library whose indirect function's resolver allocates. It depends on libc alone, so the loader relocates it after
 * libc and before the preloaded allocator, and runs the resolver then: a malloc is called none of whose pointers are
 * relocated. To be built with -fno-plt, so that the library's own way to malloc is ready by then; hidden, so that its
 * indirect relocation comes last. */
#include <stddef.h>

extern void *malloc(size_t);
extern void *calloc(size_t, size_t);
extern void *realloc(void *, size_t);
extern void *memalign(size_t, size_t);
extern size_t malloc_usable_size(void *);
extern void free(void *);

static unsigned char *block_of_the_resolver;

static int chosen(void) { return 42; }

static int (*resolve_answer(void))(void) {
    unsigned char *kept = malloc(100);
    void *gone = malloc(3000);
    if (kept != NULL)
        for (int i = 0; i < 100; i++) kept[i] = (unsigned char)i;
    free(gone);
    for (size_t size = 1; kept != NULL && size < 3000000; size += size / 2 + 1) {
        unsigned char *zero = calloc(1, size);
        if (zero == NULL || malloc_usable_size(zero) < size) return NULL;
        for (size_t i = 0; i < size; i++)
            if (zero[i] != 0) return NULL;
        kept = realloc(kept, size < 100 ? 100 : size);
        free(zero);
        void *aligned = memalign(256, size);
        if (aligned == NULL || (size_t)aligned % 256 != 0) return NULL;
        free(aligned);
    }
    block_of_the_resolver = kept;
    return chosen;
}

static int indirect_answer(void) __attribute__((ifunc("resolve_answer")));

/* Taking the address makes the loader resolve it eagerly, lazy binding or not. */
static int (*volatile answer_pointer)(void) = indirect_answer;

int answer(void) { return answer_pointer(); }

unsigned char *resolver_block(void) { return block_of_the_resolver; }
