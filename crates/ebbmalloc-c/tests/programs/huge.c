/* Every function at every size: 2^k - 1, 2^k, 2^k + 1 for all k, the ends of the range, and each with every alignment.
 * The answer is address space or ENOMEM, and no call costs more system calls or touched pages for a larger size. */
#include "check.h"
#include <link.h>
#include <malloc.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <ucontext.h>

#include "../../include/ebbmalloc.h"

/* Only the preloaded object has them. */
#pragma weak mallocx
#pragma weak rallocx
#pragma weak xallocx
#pragma weak sallocx
#pragma weak dallocx
#pragma weak sdallocx
#pragma weak nallocx

extern void *reallocarray(void *, size_t, size_t);
extern void *_ZnwmRKSt9nothrow_t(size_t, const void *) __attribute__((weak));
extern void *_ZnamRKSt9nothrow_t(size_t, const void *) __attribute__((weak));
extern void *_ZnwmSt11align_val_tRKSt9nothrow_t(size_t, size_t, const void *) __attribute__((weak));
extern void *_ZnamSt11align_val_tRKSt9nothrow_t(size_t, size_t, const void *) __attribute__((weak));

enum {
    /* A request that fails first returns all free memory: two passes over what the program holds. */
    MOST_CALLS = 200,
    /* A block of 2 MiB may be copied: each page is read and written. */
    MOST_FAULTS = 1500,
    /* Zeros are written into blocks of less than 64 MiB whose memory was used before. */
    MOST_ZEROED_MIB = 64,
    MOST_RSS_KIB = 4 << 10,
};

/* System calls from outside libc are counted where the kernel can stop them (since 5.11, x86-64). */
static volatile unsigned char intercepts;
static volatile unsigned long calls_made;

#if defined __x86_64__ && defined SYS_prctl
#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif
static void count_call(int signal_number, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    (void)signal_number, (void)info;
    intercepts = 0;
    calls_made++;
    register long r10 __asm__("r10") = registers[REG_R10];
    register long r8 __asm__("r8") = registers[REG_R8];
    register long r9 __asm__("r9") = registers[REG_R9];
    long result = registers[REG_RAX];
    __asm__ volatile("syscall"
                     : "+a"(result)
                     : "D"(registers[REG_RDI]), "S"(registers[REG_RSI]), "d"(registers[REG_RDX]), "r"(r10), "r"(r8),
                       "r"(r9)
                     : "rcx", "r11", "memory");
    registers[REG_RAX] = result;
    intercepts = 1;
}

/* The address and the length of the code that `getpid` is in. */
static int find_libc(struct dl_phdr_info *object, size_t size, void *out) {
    uintptr_t *range = out;
    (void)size;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        uintptr_t start = object->dlpi_addr + object->dlpi_phdr[i].p_vaddr;
        size_t length = object->dlpi_phdr[i].p_memsz;
        if (object->dlpi_phdr[i].p_type == PT_LOAD && (uintptr_t)getpid - start < length)
            range[0] = start, range[1] = length;
    }
    return 0;
}

static void count_calls(void) {
    struct sigaction action = {.sa_sigaction = count_call, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGSYS, &action, NULL) == 0);
    /* libc's own calls pass: the return from the handler is one. */
    uintptr_t libc[2] = {0, 0};
    dl_iterate_phdr(find_libc, libc);
    CHECK(libc[0] != 0);
    if (syscall(SYS_prctl, PR_SET_SYSCALL_USER_DISPATCH, 1, libc[0], libc[1], &intercepts) != 0) return;
    intercepts = 1;
    free(malloc(3 * MIB));
    madvise(NULL, 0, MADV_NORMAL);
    intercepts = 0;
    CHECK(calls_made > 0);
}
#else
static void count_calls(void) {}
#endif

static long faults(void) {
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    return usage.ru_minflt;
}

static long resident_kib(void) {
    char text[128] = "";
    int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0 && read(file, text, sizeof text - 1) > 0);
    close(file);
    long pages = 0;
    CHECK(sscanf(text, "%*d %ld", &pages) == 1);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

/* What is under way, for the message. */
static const char *function;
static size_t size_asked, align_asked;

#define HOLDS(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            char line[300];                                                                                            \
            snprintf(line, sizeof line, "%s of %#zx aligned to %#zx: %s\n", function, size_asked, align_asked,         \
                     #condition);                                                                                      \
            say(line);                                                                                                 \
            _exit(99);                                                                                                 \
        }                                                                                                              \
    } while (0)

static long faults_before;
static unsigned long calls_before;

static void begin(const char *name, size_t size, size_t align) {
    function = name, size_asked = size, align_asked = align;
    faults_before = faults();
    calls_before = calls_made;
    errno = 0;
    intercepts = 1;
}

static void end(void) {
    intercepts = 0;
    size_t zeroed = MOST_ZEROED_MIB * MIB / (size_t)sysconf(_SC_PAGESIZE);
    HOLDS(faults() - faults_before < MOST_FAULTS + (long)(size_asked <= 2 * MOST_ZEROED_MIB * MIB ? zeroed : 0));
    HOLDS(calls_made - calls_before < MOST_CALLS);
}

/* A new block, or none: then, if the function sets it, errno says why. */
static void made(void *block, int sets_errno) {
    int error = errno;
    if (block == NULL) {
        HOLDS(size_asked > 0 || align_asked > 4096);
        HOLDS(!sets_errno || error == ENOMEM);
    } else {
        HOLDS(malloc_usable_size(block) >= size_asked);
        HOLDS((uintptr_t)block % align_asked == 0);
        free(block);
    }
    end();
}

/* A block of its own that grows to `size` and keeps what it holds, or stays. */
#define GROWS(name, length, sets_errno, grow)                                                                          \
    do {                                                                                                               \
        unsigned char *block = malloc(length);                                                                         \
        CHECK(block != NULL);                                                                                          \
        block[0] = 1, block[(length) - 1] = 2;                                                                         \
        begin(name, size, 1);                                                                                          \
        unsigned char *grown = (grow);                                                                                 \
        int error = errno;                                                                                             \
        HOLDS(grown != NULL || !(sets_errno) || error == ENOMEM);                                                      \
        if (grown != NULL) block = grown;                                                                              \
        HOLDS(malloc_usable_size(block) >= (grown != NULL ? size : (length)));                                         \
        if (size >= (length) || grown == NULL) HOLDS(block[0] == 1 && block[(length) - 1] == 2);                       \
        free(block);                                                                                                   \
        end();                                                                                                         \
    } while (0)

static void one_size(size_t size) {
    begin("malloc", size, 16), made(malloc(size), 1);
    begin("calloc", size, 16), made(calloc(1, size), 1);
    begin("calloc", size, 16), made(calloc(size, 1), 1);
    begin("reallocarray", size, 16), made(reallocarray(NULL, size, 1), 1);
    begin("realloc of NULL", size, 16), made(size ? realloc(NULL, size) : malloc(0), 1);
    begin("valloc", size, 4096), made(valloc(size), 1);
    begin("pvalloc", size, 4096), made(pvalloc(size), 1);
    if (mallocx != NULL) {
        begin("mallocx", size, 16), made(mallocx(size, 0), 0);
        begin("mallocx zero", size, 16), made(mallocx(size, MALLOCX_ZERO), 0);
        begin("operator new", size, 16), made(_ZnwmRKSt9nothrow_t(size, ""), 0);
        begin("operator new[]", size, 16), made(_ZnamRKSt9nothrow_t(size, ""), 0);
        begin("sdallocx", size, 1);
        void *block = mallocx(size, 0);
        HOLDS(block == NULL || (sallocx(block, 0) >= size && nallocx(size, 0) == sallocx(block, 0)));
        if (block != NULL) sdallocx(block, size, 0);
        end();
    }
    if (size == 0) return;
    GROWS("realloc of a small block", (size_t)100, 1, realloc(block, size));
    GROWS("realloc of a large block", 2 * MIB, 1, realloc(block, size));
    GROWS("reallocarray", 2 * MIB, 1, reallocarray(block, 1, size));
    if (mallocx == NULL) return;
    GROWS("rallocx", 2 * MIB, 0, rallocx(block, size, 0));
    GROWS("rallocx zero", 2 * MIB, 0, rallocx(block, size, MALLOCX_ZERO));
    GROWS("rallocx aligned", 2 * MIB, 0, rallocx(block, size, MALLOCX_LG_ALIGN(14)));
    GROWS("rallocx around the cache", 2 * MIB, 0, rallocx(block, size, MALLOCX_TCACHE_NONE));
    for (int zero = 0; zero <= MALLOCX_ZERO; zero += MALLOCX_ZERO)
        for (int extra = 0; extra < 2; extra++) {
            void *block = MUST(malloc(2 * MIB));
            begin(extra ? "xallocx extra" : "xallocx", size, 1);
            size_t now = xallocx(block, extra ? 2 * MIB : size, extra ? size : 0, zero);
            HOLDS(now == sallocx(block, 0) && now == malloc_usable_size(block) && now > 65536);
            free(block);
            end();
        }
}

/* Alignments that are no powers of two are refused, or rounded up by memalign. */
static void one_alignment(size_t size, size_t align) {
    int is_power = align != 0 && (align & (align - 1)) == 0;
    size_t least = align < 16 ? 1 : align;
    void *block = NULL;
    begin("posix_memalign", size, is_power ? least : 1);
    int result = posix_memalign(&block, align, size);
    HOLDS(result == 0 || block == NULL);
    HOLDS(result == (is_power && align >= sizeof(void *) ? (block ? 0 : ENOMEM) : EINVAL));
    if (block != NULL) made(block, 1);
    end();
    begin("aligned_alloc", size, is_power ? least : 1);
    block = aligned_alloc(align, size);
    if (block == NULL) HOLDS(errno == (is_power ? ENOMEM : EINVAL));
    else made(block, 1);
    end();
    begin("memalign", size, is_power ? least : 1);
    block = memalign(align, size);
    if (block == NULL) HOLDS(errno == (align <= (size_t)1 << 63 ? ENOMEM : EINVAL));
    else made(block, 1);
    end();
    if (!is_power || mallocx == NULL) return;
    begin("operator new aligned", size, least), made(_ZnwmSt11align_val_tRKSt9nothrow_t(size, align, ""), 0);
    begin("operator new[] aligned", size, least), made(_ZnamSt11align_val_tRKSt9nothrow_t(size, align, ""), 0);
    begin("mallocx aligned", size, least), made(mallocx(size, MALLOCX_ALIGN(align)), 0);
    begin("nallocx aligned", size, least);
    HOLDS(nallocx(size, MALLOCX_ALIGN(align)) == 0 || nallocx(size, MALLOCX_ALIGN(align)) >= size);
    end();
}

/* Blocks that were never touched and live at once, and what a long one costs that moves. */
static void untouched(void) {
    void *held[64];
    for (int i = 0; i < 64; i++) {
        begin("one of 64 blocks of 4 GiB", (size_t)4 << 30, 1);
        held[i] = malloc((size_t)4 << 30);
        end();
    }
    for (int i = 0; i < 64; i++) free(held[i]);
    begin("calloc of what was never used", (size_t)1 << 38, 1);
    free(malloc((size_t)1 << 38));
    unsigned char *block = calloc(1, (size_t)1 << 38);
    if (block != NULL) {
        HOLDS(block[0] == 0 && block[((size_t)1 << 38) - 1] == 0);
        block[12345678] = 9;
        free(malloc((size_t)1 << 39));
        for (int log2 = 39; log2 >= 37; log2--) {
            unsigned char *moved = realloc(block, ((size_t)1 << log2) + 5000);
            if (moved != NULL) block = moved;
            HOLDS(block[12345678] == 9);
        }
    }
    free(block);
    end();
}

int main(void) {
    require_preload();
    count_calls();
    long before = resident_kib();
    one_size(0);
    for (int k = 0; k < 64; k++)
        for (int d = -1; d <= 1; d++) one_size(((size_t)1 << k) + (size_t)d);
    static const size_t ends[] = {(size_t)PTRDIFF_MAX - 1, SIZE_MAX,        SIZE_MAX - 1,     SIZE_MAX - 15,
                                  SIZE_MAX - 4095,         SIZE_MAX - 4096, SIZE_MAX - 65535, SIZE_MAX - 65536};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) one_size(ends[i]);
    for (int a = 0; a < 64; a++) {
        size_t align = (size_t)1 << a;
        for (int d = -1; d <= 1; d++) {
            size_t other = align + (size_t)d;
            for (int k = 3; k < 64; k += a < 40 ? 7 : 3) {
                one_alignment(((size_t)1 << k) - 1, other);
                one_alignment((size_t)1 << k, other);
                one_alignment(((size_t)1 << k) - align, other);
            }
            one_alignment(SIZE_MAX - align, other);
            one_alignment(SIZE_MAX - align + 1, other);
            one_alignment((size_t)PTRDIFF_MAX - align, other);
        }
    }
    untouched();
    malloc_trim(0);
    CHECK(resident_kib() - before < MOST_RSS_KIB);
    return passed();
}
