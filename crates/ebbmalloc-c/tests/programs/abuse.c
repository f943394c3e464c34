/* Each form of misuse must end in one line on stderr and SIGABRT, not in a silently broken heap. Argument: the form.
 * Reaching the end of main is a failure. */
#include "check.h"

/* volatile: the compiler must not see the misuse. */
static void *volatile victim;
static char static_bytes[4096];

static void *allocate_some(void *unused) {
    churn(3, 5000);
    return unused;
}

/* Moves what the thread's cache holds back to the slabs, where an older double entry is seen. */
static void flush_size(size_t size) {
    enum { BLOCKS = 4000 };
    static void *block[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) block[i] = malloc(size);
    for (size_t i = 0; i < BLOCKS; i++) free(block[i]);
}

/* p, q, p of one size, and nothing after it. */
static int at_exit(size_t size) {
    void *volatile other = malloc(size);
    victim = malloc(size);
    free(victim);
    free(other);
    free(victim);
    return 77;
}

static void *allocate_for_ever(void *unused) {
    for (;;) allocate_some(unused);
    return unused;
}

static void *free_unaligned(void *block) {
    victim = (char *)block + 1;
    free(victim);
    return NULL;
}

/* A block made of neighbouring slots of a smaller class, which many survivors made room for. */
static char *lent_block(void) {
    enum { BLOCKS = 40 * 4096 };
    static void *block[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) block[i] = malloc(16);
    for (size_t i = 0; i < BLOCKS; i++)
        if (i % 32 != 0) free(block[i]);
    flush_size(16);
    /* The slabs of its own class are full before it borrows. */
    char *newest = NULL;
    for (size_t i = 0; i < 4000; i++) newest = malloc(64);
    return newest;
}

int main(int count, char **arguments) {
    require_preload();
    CHECK(count == 2);
    const char *form = arguments[1];
    allocate_some(NULL);
    if (strcmp(form, "double_newest") == 0) {
        victim = malloc(100);
        free(victim);
        free(victim);
    } else if (strcmp(form, "double_older") == 0) {
        void *volatile other[3];
        victim = malloc(100);
        for (int i = 0; i < 3; i++) other[i] = malloc(100);
        free(victim);
        for (int i = 0; i < 3; i++) free(other[i]);
        free(victim);
        flush_size(100);
        _exit(77);
    } else if (strcmp(form, "double_other_thread") == 0) {
        victim = malloc(100);
        free(victim);
        join(started((void *(*)(void *))(void *)free, victim));
        flush_size(100);
        /* The other thread's cache was left to the next one; it is looked at when the process ends. */
        return 77;
    } else if (strcmp(form, "double_large") == 0) {
        victim = malloc(3 * MIB);
        free(victim);
        free(victim);
    } else if (strcmp(form, "double_lent") == 0) {
        victim = lent_block();
        free(victim);
        free(victim);
        flush_size(16);
    } else if (strcmp(form, "interior_lent") == 0) {
        victim = lent_block() + 16;
        free(victim);
    } else if (strcmp(form, "foreign_stack") == 0) {
        char on_stack[64];
        victim = on_stack + 16;
        free(victim);
    } else if (strcmp(form, "foreign_static") == 0) {
        victim = static_bytes + 64;
        free(victim);
    } else if (strcmp(form, "foreign_mapped") == 0) {
        victim = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        free(victim);
    } else if (strcmp(form, "foreign_wild") == 0) {
        victim = (void *)(uintptr_t)0x123456789ab0;
        free(victim);
    } else if (strcmp(form, "foreign_realloc") == 0) {
        victim = static_bytes + 64;
        victim = realloc(victim, 100);
    } else if (strcmp(form, "interior") == 0) {
        victim = malloc(5000);
        free((char *)victim + 16);
        flush_size(5000);
    } else if (strcmp(form, "interior_odd") == 0) {
        victim = malloc(200);
        free((char *)victim + 1);
        flush_size(200);
    } else if (strcmp(form, "interior_large") == 0) {
        victim = malloc(3 * MIB);
        free((char *)victim + MIB);
    } else if (strcmp(form, "interior_large_page") == 0) {
        victim = malloc(3 * MIB);
        free((char *)victim + 4096);
    } else if (strcmp(form, "exit_double_interleaved") == 0) {
        /* From here on nothing else happens: main returns. */
        return at_exit(100);
    } else if (strcmp(form, "exit_double_interleaved_medium") == 0) {
        return at_exit(20000);
    } else if (strcmp(form, "exit_double_first_of_twenty") == 0) {
        void *volatile block[20];
        for (int i = 0; i < 20; i++) block[i] = malloc(40);
        for (int i = 0; i < 20; i++) free(block[i]);
        free(block[0]);
        return 77;
    } else if (strcmp(form, "exit_unaligned") == 0) {
        victim = malloc(40);
        free((char *)victim + 1);
        return 77;
    } else if (strcmp(form, "exit_unaligned_multiple") == 0) {
        for (int i = 0; i < 8; i++) {
            victim = malloc(20000);
            free((char *)victim + 8);
        }
        return 77;
    } else if (strcmp(form, "exit_interior") == 0) {
        victim = malloc(5000);
        free((char *)victim + 16);
        exit(77);
    } else if (strcmp(form, "exit_while_threads_allocate") == 0) {
        for (int i = 0; i < 3; i++) started(allocate_for_ever, NULL);
        usleep(20000);
        return at_exit(100);
    } else if (strcmp(form, "thread_end_unaligned") == 0) {
        join(started(free_unaligned, malloc(40)));
        _exit(77);
    } else if (strcmp(form, "tick_unaligned") == 0) {
        victim = malloc(40);
        free((char *)victim + 1);
        /* Enough that the purger starts; it drains the cache of a thread that sleeps. */
        for (int i = 0; i < 8; i++) {
            char *volatile burst = malloc(MIB);
            memset(burst, 1, MIB);
            free(burst);
        }
        for (int i = 0; i < 100; i++) usleep(100000);
        _exit(77);
    } else {
        CHECK(!"unknown form");
    }
    say("nothing noticed\n");
    return 77;
}
