/* Finds a block with sampled guards and misuses it, as the argument says. */
#include "check.h"
#include <malloc.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { BYTES = 100, KEPT = 8 << 20 };

__attribute__((noinline)) static char *find(void) {
    static char *kept[KEPT / 8];
    for (int i = 0; i < KEPT / 8; i++) {
        kept[i] = malloc(BYTES);
        /* Of all other blocks all of the slot can be used. */
        if (malloc_usable_size(kept[i]) == BYTES) return kept[i];
    }
    return NULL;
}

__attribute__((noinline)) static void release(char *block) { free(block); }

int main(int count, char **arguments) {
    CHECK(count == 2);
    char *volatile block = find();
    if (strcmp(arguments[1], "none") == 0) CHECK(block == NULL);
    else {
        CHECK(block != NULL && (uintptr_t)block % 16 == 0);
        memset(block, 'A', BYTES);
        printf("%p\n", (void *)block);
        fflush(stdout);
    }
    if (strcmp(arguments[1], "wait") == 0) getchar();
    if (strcmp(arguments[1], "free_interior") == 0) release(block + 16);
    if (strcmp(arguments[1], "write_after") == 0) block[BYTES + 12] = 1;
    if (strcmp(arguments[1], "realloc") == 0) {
        block = realloc(block, 5000);
        CHECK(block[BYTES - 1] == 'A');
        release(block);
    }
    if (strcmp(arguments[1], "fork") == 0) {
        pid_t child = fork();
        release(block);
        if (child == 0) _exit(0);
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    if (strstr(arguments[1], "freed")) release(block);
    if (strcmp(arguments[1], "freed_again") == 0) release(block);
    if (strcmp(arguments[1], "freed_written") == 0) block[0] = 1;
    puts("ok");
    return 0;
}
