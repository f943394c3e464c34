/* Large blocks with guards after them, used as the contract allows: each byte that was asked for can be written, also after
 * a realloc, in the child of a fork, and in memory that had a guard. */
#include "check.h"
#include <sys/wait.h>

enum { BLOCKS = 32, ROUNDS = 3000 };
static unsigned char *block[BLOCKS];
static size_t size[BLOCKS];
static unsigned random_state = 1;

static unsigned draw(void) {
    random_state = random_state * 1664525 + 1013904223;
    return random_state >> 8;
}

static void mark(int i) { memset(block[i], i + 1, size[i]); }

static void has_bytes(int i, size_t bytes, int value) {
    for (size_t at = 0; at < bytes; at += 509) CHECK(block[i][at] == value);
    if (bytes > 0) CHECK(block[i][bytes - 1] == value);
}

static void change(int i) {
    size_t old = size[i], now = 1 + (draw() % 2 ? (1 + draw() % 32) * 65536 - 1 : draw() % 2000000);
    has_bytes(i, old, i + 1);
    size[i] = now;
    switch (draw() % 3) {
    case 0:
        block[i] = realloc(block[i], now);
        has_bytes(i, old < now ? old : now, i + 1);
        break;
    case 1:
        free(block[i]);
        block[i] = malloc(now);
        break;
    default:
        free(block[i]);
        block[i] = calloc(1, now);
        has_bytes(i, now, 0);
    }
    mark(i);
}

int main(void) {
    for (int round = 0; round < ROUNDS; round++) {
        change((int)(draw() % BLOCKS));
        if (round % 500 == 0) {
            pid_t child = fork();
            if (child == 0) {
                for (int i = 0; i < BLOCKS; i++) change(i);
                _exit(0);
            }
            int status;
            CHECK(waitpid(child, &status, 0) == child && status == 0);
        }
    }
    puts("ok");
    return 0;
}
