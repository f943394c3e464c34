/* The trap flag raises SIGTRAP after every instruction of malloc, free, calloc and realloc; the
 * handler allocates and frees each time. So every instruction boundary of the fast paths, and of
 * the refills and flushes that happen on the way, is interrupted: 10^6 deliveries. x86-64 only. */
#include "check.h"
#include <ucontext.h>

#if !defined(__x86_64__)
#error "single stepping by the trap flag is x86-64's"
#endif

static volatile long delivered;
static void *held[64];
static size_t held_size[64];
static uint64_t handler_random = 77;

static void on_trap(int number, siginfo_t *info, void *context) {
    (void)number, (void)info, (void)context;
    int saved_errno = errno;
    long turn = ++delivered;
    size_t slot = (size_t)turn % 64;
    if (held[slot] != NULL) {
        CHECK(holds(held[slot], held_size[slot]));
        free(held[slot]);
        held[slot] = NULL;
    } else {
        held_size[slot] = 1 + next_random(&handler_random) % (turn % 16 == 0 ? 20000 : 300);
        held[slot] = malloc(held_size[slot]);
        CHECK(held[slot] != NULL);
        fill(held[slot], held_size[slot]);
    }
    errno = saved_errno;
}

#define TRAP_FLAG 0x100ul
static inline void step_on(void) {
    __asm__ volatile("pushfq; orq %0, (%%rsp); popfq" ::"i"(TRAP_FLAG) : "memory", "cc");
}
static inline void step_off(void) {
    __asm__ volatile("pushfq; andq %0, (%%rsp); popfq" ::"i"((int)~TRAP_FLAG) : "memory", "cc");
}

int main(void) {
    require_preload();
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_trap;
    action.sa_flags = SA_SIGINFO;
    CHECK(sigaction(SIGTRAP, &action, NULL) == 0);
    enum { SLOTS = 512 };
    static void *block[SLOTS];
    static size_t size[SLOTS];
    uint64_t random = 3;
    const long wanted = scaled(1000000, 10000000);
    while (delivered < wanted) {
        size_t slot = next_random(&random) % SLOTS;
        uint64_t draw = next_random(&random);
        size_t next = 1 + (draw >> 16) % (draw % 64 == 0 ? 40000 : 400);
        if (block[slot] == NULL) {
            void *fresh;
            step_on();
            fresh = draw % 8 == 1 ? calloc(1, next) : malloc(next);
            step_off();
            block[slot] = fresh;
            CHECK(block[slot] != NULL);
            size[slot] = next;
            fill(block[slot], next);
        } else if (draw % 4 == 2) {
            CHECK(holds(block[slot], size[slot]));
            void *moved;
            step_on();
            moved = realloc(block[slot], next);
            step_off();
            block[slot] = moved;
            CHECK(block[slot] != NULL);
            size[slot] = next;
            fill(block[slot], next);
        } else {
            CHECK(holds(block[slot], size[slot]));
            step_on();
            free(block[slot]);
            step_off();
            block[slot] = NULL;
        }
    }
    for (size_t i = 0; i < SLOTS; i++) {
        if (block[i] != NULL) CHECK(holds(block[i], size[i]));
        free(block[i]);
    }
    for (size_t i = 0; i < 64; i++) {
        if (held[i] != NULL) CHECK(holds(held[i], held_size[i]));
        free(held[i]);
    }
    return passed();
}
