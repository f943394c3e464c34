/* A process for `ebb why`. It allocates 64,000 blocks by libc's malloc and frees seven of each eight. glibc and musl round their
 * size up by little. It prints the bytes of the live blocks, then sleeps for the seconds that the argument gives. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCKS = 64000, BYTES = 572 };

int main(int argc, char **given) {
    static char *block[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        block[i] = malloc(BYTES);
        if (block[i] == NULL) return 1;
        memset(block[i], 1, BYTES);
    }
    for (int i = 0; i < BLOCKS; i++)
        if (i % 8 != 0) free(block[i]);
    printf("%d\n", BLOCKS / 8 * BYTES);
    fflush(stdout);
    alarm(argc > 1 ? (unsigned)atoi(given[1]) : 600);
    for (;;) pause();
}
