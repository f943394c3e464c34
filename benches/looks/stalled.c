// A process with much memory that times its own calls: stalled BYTES_OF_ONE_MAPPING NUMBER_OF_MAPPINGS.
//
// Prints "ready" once its memory is there. For each line on stdin it prints the longest mmap with munmap, the longest page fault, both in
// microseconds, and how often each was timed since the line before. Used by stalls.py.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static double longest_map, longest_fault;
static long rounds;

static double now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

static char *mapping(size_t bytes) {
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return at;
}

static void *rounds_of_calls(void *unused) {
    char *heap = mapping(1 << 20);
    madvise(heap, 1 << 20, MADV_NOHUGEPAGE);
    for (;;) {
        double begin = now_us();
        munmap(mapping(1 << 16), 1 << 16);
        double map = now_us() - begin;
        madvise(heap, 4096, MADV_DONTNEED);
        begin = now_us();
        *(volatile char *)heap = 1;
        double fault = now_us() - begin;
        pthread_mutex_lock(&lock);
        if (map > longest_map) longest_map = map;
        if (fault > longest_fault) longest_fault = fault;
        rounds++;
        pthread_mutex_unlock(&lock);
        usleep(100);
    }
    return unused;
}

int main(int count, char **words) {
    if (count != 3) return 2;
    size_t bytes = strtoull(words[1], NULL, 10);
    long mappings = atol(words[2]);
    if (bytes > 0) {
        char *large = mapping(bytes);
        madvise(large, bytes, MADV_NOHUGEPAGE);
        for (size_t at = 0; at < bytes; at += 4096) large[at] = 1;
    }
    for (long i = 0; i < mappings; i++) {
        // Neighbours of other rights stay apart.
        char *small = mapping(8192);
        memset(small, 1, 8192);
        if (i % 2) mprotect(small, 8192, PROT_READ);
    }
    pthread_t thread;
    pthread_create(&thread, NULL, rounds_of_calls, NULL);
    puts("ready");
    fflush(stdout);
    for (int letter; (letter = getchar()) != EOF;) {
        if (letter != '\n') continue;
        pthread_mutex_lock(&lock);
        printf("%.0f %.0f %ld\n", longest_map, longest_fault, rounds);
        longest_map = longest_fault = 0;
        rounds = 0;
        pthread_mutex_unlock(&lock);
        fflush(stdout);
    }
}
