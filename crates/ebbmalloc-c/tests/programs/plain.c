/* A small, correct program: threads, blocks of all sizes, realloc, calloc, alignment. Run under
 * valgrind and with a sanitizer's runtime beside the preload. With argument "overflow" it writes
 * past a block, which a sanitizer must still see. */
#include "check.h"

static void *work(void *seed) {
    struct churn set;
    churn_start(&set, (uintptr_t)seed);
    for (int i = 0; i < 3000; i++) churn_step(&set);
    churn_end(&set);
    return NULL;
}

int main(int count, char **arguments) {
    if (getenv("EBB_TEST_NOT_IN_CHARGE") == NULL) require_preload();
    pthread_t thread[3];
    for (uintptr_t i = 0; i < 3; i++) CHECK(pthread_create(&thread[i], NULL, work, (void *)i) == 0);
    work((void *)9);
    for (size_t i = 0; i < 3; i++) CHECK(pthread_join(thread[i], NULL) == 0);
    char *block = calloc(10, 10);
    CHECK(block != NULL);
    block = realloc(block, 1000);
    CHECK(block != NULL && block[99] == 0);
    free(block);
    void *aligned = NULL;
    CHECK(posix_memalign(&aligned, 4096, 100) == 0);
    free(aligned);
    if (count == 2 && strcmp(arguments[1], "overflow") == 0) {
        volatile char *past = malloc(100);
        past[100] = 1;
        free((void *)past);
    }
    return passed();
}
