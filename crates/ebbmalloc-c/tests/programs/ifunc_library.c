/* A library whose indirect function's resolver allocates. It depends on libc alone, so the loader
 * relocates it, and runs the resolver, before the preloaded allocator is relocated. */
#include <stddef.h>

extern void *malloc(size_t);
extern void free(void *);

void *resolver_block;

static int chosen(void) { return 42; }

static int (*resolve_answer(void))(void) {
    unsigned char *kept = malloc(100);
    void *gone = malloc(3000);
    if (kept != NULL)
        for (int i = 0; i < 100; i++) kept[i] = (unsigned char)i;
    free(gone);
    resolver_block = kept;
    return chosen;
}

int answer(void) __attribute__((ifunc("resolve_answer")));

/* Taking the address makes the loader resolve it eagerly, lazy binding or not. */
int (*answer_pointer)(void) = answer;
