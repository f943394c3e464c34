/* Edge sizes of every function, the errno each leaves, and that a usable size is usable. */
#include "check.h"
#include <malloc.h>

extern void *reallocarray(void *, size_t, size_t);

static const size_t refused[] = {(size_t)PTRDIFF_MAX + 1, (size_t)PTRDIFF_MAX, SIZE_MAX,
                                 SIZE_MAX - 4096, SIZE_MAX / 2 + 2};

int main(void) {
    require_preload();

    /* Size 0: distinct, freeable, aligned. */
    void *zero[3] = {malloc(0), malloc(0), calloc(0, 5)};
    for (int i = 0; i < 3; i++) CHECK(zero[i] != NULL);
    CHECK(zero[0] != zero[1] && zero[1] != zero[2]);
    CHECK(calloc(5, 0) != NULL);
    for (int i = 0; i < 3; i++) free(zero[i]);
    free(NULL);
    CHECK(malloc_usable_size(NULL) == 0);
    void *out = NULL;
    CHECK(posix_memalign(&out, 64, 0) == 0);
    free(out);
    free(aligned_alloc(64, 0));
    free(memalign(64, 0));

    /* More than an object can be. */
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        /* volatile: the compiler knows that these cannot succeed. */
        volatile size_t size = refused[i];
        errno = 0;
        CHECK(malloc(size) == NULL && errno == ENOMEM);
        errno = 0;
        CHECK(calloc(1, size) == NULL && errno == ENOMEM);
        errno = 0;
        CHECK(calloc(size, 1) == NULL && errno == ENOMEM);
        errno = 0;
        CHECK(realloc(NULL, size) == NULL && errno == ENOMEM);
        errno = 0;
        CHECK(valloc(size) == NULL && errno == ENOMEM);
        errno = 0;
        CHECK(reallocarray(NULL, size, 1) == NULL && errno == ENOMEM);
        /* A failed realloc leaves the block alone. */
        void *kept = malloc(100);
        CHECK(kept != NULL);
        fill(kept, 100);
        errno = 0;
        CHECK(realloc(kept, size) == NULL && errno == ENOMEM);
        CHECK(holds(kept, 100));
        free(kept);
    }
    volatile size_t half = (size_t)1 << 32;
    errno = 0;
    CHECK(calloc(half, half) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(calloc(half + 1, half + 7) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(reallocarray(NULL, half, half) == NULL && errno == ENOMEM);
    void *array = reallocarray(NULL, 10, 20);
    CHECK(array != NULL && malloc_usable_size(array) >= 200);
    fill(array, 200);
    errno = 0;
    CHECK(reallocarray(array, half, half + 3) == NULL && errno == ENOMEM);
    CHECK(holds(array, 200));
    array = reallocarray(array, 100, 20);
    CHECK(array != NULL);
    free(array);

    /* realloc's own forms: of NULL it is malloc; to 0 it frees and returns NULL, as in glibc. */
    void *block = realloc(NULL, 10);
    CHECK(block != NULL);
    errno = 0;
    CHECK(realloc(block, 0) == NULL);
    CHECK(errno == 0);
    block = realloc(NULL, 0);
    CHECK(block != NULL);
    free(block);

    /* Success and free leave errno alone, also where they go to the kernel. */
    for (size_t size = 1; size < 64 * MIB; size = size * 3 + 1) {
        errno = 12345;
        void *one = malloc(size);
        CHECK(one != NULL && errno == 12345);
        one = realloc(one, size * 2);
        CHECK(one != NULL && errno == 12345);
        free(one);
        CHECK(errno == 12345);
        one = calloc(1, size);
        CHECK(one != NULL && errno == 12345);
        free(one);
        CHECK(errno == 12345);
    }

    /* What is usable is writable, holds beside its neighbours, and is at least what was asked. */
    for (size_t size = 0; size <= 9 * MIB; size += size < 3000 ? 1 : size / 7) {
        unsigned char *one = malloc(size), *two = malloc(size);
        CHECK(one != NULL && two != NULL);
        size_t usable = malloc_usable_size(one), other = malloc_usable_size(two);
        CHECK(usable >= size && other >= size);
        /* At most an eighth more than was asked, above 128 bytes and short of whole pages. */
        if (size > 128 && size < 32 << 10) CHECK(usable <= size + size / 7 + 16);
        fill(one, usable);
        fill(two, other);
        CHECK(holds(one, usable) && holds(two, other));
        memset(one, 0xAB, usable);
        CHECK(holds(two, other));
        free(one);
        CHECK(holds(two, other));
        free(two);
    }

    /* C23's sized forms, where the library has them, take the size that was asked for. */
    void (*free_sized)(void *, size_t) = (void (*)(void *, size_t))dlsym(RTLD_DEFAULT, "free_sized");
    void (*free_aligned_sized)(void *, size_t, size_t) =
        (void (*)(void *, size_t, size_t))dlsym(RTLD_DEFAULT, "free_aligned_sized");
    void (*cfree)(void *) = (void (*)(void *))dlsym(RTLD_DEFAULT, "cfree");
    if (getenv("EBB_TEST_FOREIGN_ALLOCATOR") == NULL)
        CHECK(free_sized != NULL && free_aligned_sized != NULL && cfree != NULL);
    for (size_t size = 0; size < 5 * MIB && free_sized != NULL; size = size * 2 + 1) {
        for (int turn = 0; turn < 300; turn++) {
            free_sized(malloc(size), size);
            free_sized(calloc(1, size), size);
            free_sized(realloc(malloc(3), size + 1), size + 1);
            free_aligned_sized(aligned_alloc(128, size), 128, size);
            cfree(malloc(size));
            if (size > 65536) break;
        }
    }
    if (free_sized != NULL) {
        free_sized(NULL, 10);
        free_aligned_sized(NULL, 64, 10);
    }
    return passed();
}
