/* A program without libc: no main, no getenv, no environ, no errno. Statically linked, or linked to nothing, so that the
 * loader gives it the preloaded objects alone. Also for a 32-bit program, with only a loader installed.
 *
 * Arguments: "with" or "without" malloc; anything more: it stays for a second. */
#include <stddef.h>

extern void *malloc(size_t) __attribute__((weak));
extern void free(void *) __attribute__((weak));

#if defined __x86_64__
#define WRITE 1
#define NANOSLEEP 35
#define EXIT_GROUP 231
static long call(long number, long a, long b, long c) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}
__asm__(".globl _start\n_start: xor %ebp, %ebp\nmov %rsp, %rdi\nand $-16, %rsp\ncall begin\n");
#elif defined __i386__
#define WRITE 4
#define NANOSLEEP 162
#define EXIT_GROUP 252
static long call(long number, long a, long b, long c) {
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c) : "memory");
    return result;
}
__asm__(".globl _start\n_start: xor %ebp, %ebp\nmov %esp, %eax\nand $-16, %esp\nsub $12, %esp\npush %eax\ncall begin\n");
#elif defined __aarch64__
#define WRITE 64
#define NANOSLEEP 101
#define EXIT_GROUP 94
static long call(long number, long a, long b, long c) {
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
    return x0;
}
__asm__(".globl _start\n_start: mov x29, xzr\nmov x30, xzr\nmov x0, sp\nbl begin\n");
#endif

static void end(int status) {
    if (status == 0) call(WRITE, 1, (long)"ok\n", 3);
    call(EXIT_GROUP, status, 0, 0);
}

/* Blocks of many sizes that come and go; whether each kept what was written to it. */
static int blocks_hold(void) {
    static unsigned char *held[64];
    for (size_t turn = 0; turn < 20000; turn++) {
        size_t slot = turn * 37 % 64, size = 1 + turn * turn % (turn % 100 == 0 ? 3000000 : 3000);
        if (held[slot] != NULL && held[slot][0] != slot) return 0;
        free(held[slot]);
        if ((held[slot] = malloc(size)) == NULL) return 0;
        held[slot][size - 1] = 1;
        held[slot][0] = (unsigned char)slot;
    }
    for (size_t slot = 0; slot < 64; slot++) free(held[slot]);
    return 1;
}

__attribute__((used)) void begin(long *stack) {
    long count = stack[0];
    const char *wanted = count > 1 ? (const char *)stack[2] : "";
    int is_with = wanted[0] == 'w' && wanted[4] == 0;
    if (is_with != (malloc != NULL)) end(3);
    if (is_with && !blocks_hold()) end(4);
    if (count > 2) {
        long rest[2] = {1, 0};
        call(NANOSLEEP, (long)rest, 0, 0);
    }
    end(0);
}
