/* A parent with so many MB and four children that share them: `tree small 60` in blocks of 1000 bytes, a third of them
   freed again; `tree paged 40` the same, half of them in swap, where there is swap; `tree huge 64` in blocks of 2 MiB on
   huge pages; `tree fast 2000000` in so many tuples' worth of small blocks, freed in random order.
   Says "ready" and ends with its input. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <signal.h>
#include <unistd.h>

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif

static char *small(size_t megabytes) {
    size_t blocks = megabytes * 1000;
    char **all = malloc(blocks * sizeof *all);
    for (size_t i = 0; i < blocks; i++) {
        all[i] = malloc(1000);
        memset(all[i], (int)i, 1000);
    }
    for (size_t i = 0; i < blocks; i += 3) free(all[i]);
    return all[1];
}

/* Every second megabyte of the heap. Before the forks: the kernel leaves pages that processes share. */
static void page_out(char *first, size_t megabytes) {
    char *page = (char *)((uintptr_t)first & -(uintptr_t)4096);
    for (size_t i = 1; i + 1 < megabytes; i += 2) madvise(page + (i << 20), 1 << 20, MADV_PAGEOUT);
}

static void huge(size_t megabytes) {
    for (size_t i = 0; i < megabytes / 2; i++) {
        char *block = aligned_alloc(2 << 20, 2 << 20);
        madvise(block, 2 << 20, MADV_HUGEPAGE);
        memset(block, 1, 2 << 20);
    }
}

static void fast(size_t blocks) {
    char **all = malloc(blocks * sizeof *all);
    for (size_t i = 0; i < blocks; i++) {
        all[i] = malloc(56);
        memset(all[i], 1, 56);
    }
    uint64_t random = 88172645463325252u;
    for (size_t i = blocks - 1; i > 0; i--) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        size_t other = random % (i + 1);
        char *block = all[i];
        all[i] = all[other];
        all[other] = block;
    }
    for (size_t i = 0; i < blocks; i++) free(all[i]);
}

int main(int count, char **arguments) {
    if (count < 3) return 1;
    size_t size = strtoul(arguments[2], NULL, 10);
    switch (arguments[1][0]) {
    case 's': small(size); break;
    case 'p': page_out(small(size), size); break;
    case 'h': huge(size); break;
    /* Without stdio, whose buffer would have malloc empty the fastbins. */
    default: fast(size); write(1, "ready\n", 6); read(0, &size, 1); return 0;
    }
    pid_t parent = getpid();
    for (int child = 0; child < 4; child++) {
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent) return 1;
            for (;;) pause();
        }
    }
    write(1, "ready\n", 6);
    read(0, &size, 1);
    kill(0, SIGKILL);
}
