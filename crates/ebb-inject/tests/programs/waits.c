/* Threads in waits of all kinds, each of which checks how its wait ends: no error that it did not ask for, not
 * too early, not much too late, registers and the red zone as they were. Says "ready", then, for each line on
 * stdin, how many rounds were made and how many were wrong. An argument picks the kinds: all without one.
 *
 * Uses malloc at each round, so that there is something to lock, and something to return. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* How late a wait may end on a loaded machine, and how early by rounding. */
#define LATE_NS 20000000000ll
#define EARLY_NS 3000000ll

static atomic_ulong rounds, wrong;
static const char *volatile what = "nothing";
static atomic_llong detail;

static long long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static void expect(int right, const char *name, long long value) {
    atomic_fetch_add(&rounds, 1);
    if (!right) {
        atomic_fetch_add(&wrong, 1);
        what = name;
        atomic_store(&detail, value);
    }
}

static void took(const char *name, long long since, long long wanted) {
    long long spent = now() - since;
    expect(spent >= wanted - EARLY_NS && spent <= wanted + LATE_NS, name, spent);
}

/* Something in all bins, part of it freed. */
static void churn(unsigned *seed) {
    enum { BLOCKS = 64 };
    char *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        size_t bytes = 16 + rand_r(seed) % 20000;
        blocks[i] = malloc(bytes);
        memset(blocks[i], i, bytes);
    }
    for (int i = 0; i < BLOCKS; i++) {
        expect(blocks[i][10] == i, "block", i);
        free(blocks[i]);
    }
}

static const struct timespec SHORT = {0, 15000000}; /* 15 ms */
#define SHORT_NS 15000000ll

static void wait_nanosleep(void) {
    long long start = now();
    int result = nanosleep(&SHORT, NULL);
    expect(result == 0, "nanosleep", errno);
    took("nanosleep's time", start, SHORT_NS);
}

static void wait_clock_nanosleep(void) {
    long long start = now();
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_nsec += SHORT_NS;
    if (at.tv_nsec >= 1000000000) {
        at.tv_nsec -= 1000000000;
        at.tv_sec++;
    }
    int result = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
    expect(result == 0, "clock_nanosleep", result);
    took("clock_nanosleep's time", start, SHORT_NS);
}

static void wait_poll(void) {
    long long start = now();
    int result = poll(NULL, 0, 15);
    expect(result == 0, "poll", result < 0 ? errno : result);
    took("poll's time", start, SHORT_NS);
}

static void wait_ppoll(void) {
    long long start = now();
    sigset_t none;
    sigemptyset(&none);
    int result = ppoll(NULL, 0, &SHORT, &none);
    expect(result == 0, "ppoll", result < 0 ? errno : result);
    took("ppoll's time", start, SHORT_NS);
}

static void wait_select(void) {
    long long start = now();
    struct timeval limit = {0, 15000};
    int result = select(0, NULL, NULL, NULL, &limit);
    expect(result == 0, "select", result < 0 ? errno : result);
    took("select's time", start, SHORT_NS);
}

static void wait_futex(void) {
    static atomic_int word;
    long long start = now();
    int result = syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &SHORT, NULL, 0);
    expect(result < 0 && errno == ETIMEDOUT, "futex", result < 0 ? errno : result);
    took("futex's time", start, SHORT_NS);
}

static void wait_condition(void) {
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    long long start = now();
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    at.tv_nsec += SHORT_NS;
    if (at.tv_nsec >= 1000000000) {
        at.tv_nsec -= 1000000000;
        at.tv_sec++;
    }
    pthread_mutex_lock(&lock);
    int result = pthread_cond_timedwait(&condition, &lock, &at);
    pthread_mutex_unlock(&lock);
    expect(result == ETIMEDOUT, "condition", result);
    took("condition's time", start, SHORT_NS);
}

static void wait_epoll(void) {
    int set = epoll_create1(0);
    struct epoll_event event;
    long long start = now();
    int result = epoll_wait(set, &event, 1, 15);
    expect(result == 0, "epoll", result < 0 ? errno : result);
    took("epoll's time", start, SHORT_NS);
    close(set);
}

/* Fail with EINTR whenever their thread is stopped, and nothing calls them again. */
static void wait_semaphore(void) {
    static int set = -1;
    if (set < 0)
        set = semget(IPC_PRIVATE, 1, 0600);
    struct sembuf down = {0, -1, 0};
    long long start = now();
    int result = semtimedop(set, &down, 1, &SHORT);
    expect(result < 0 && errno == EAGAIN, "semaphore", result < 0 ? errno : result);
    took("semaphore's time", start, SHORT_NS);
}

static void wait_signal(void) {
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR2);
    long long start = now();
    int result = sigtimedwait(&one, NULL, &SHORT);
    expect(result < 0 && errno == EAGAIN, "signal", result < 0 ? errno : result);
    took("signal's time", start, SHORT_NS);
}

static void wait_receive(void) {
    static int ends[2] = {-1, -1};
    if (ends[0] < 0) {
        socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
        struct timeval limit = {0, 15000};
        setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    }
    char byte;
    long long start = now();
    int result = recv(ends[0], &byte, 1, 0);
    expect(result < 0 && errno == EAGAIN, "receive", result < 0 ? errno : result);
    took("receive's time", start, SHORT_NS);
}

/* A pipe on which one thread answers another: no byte is lost or made up. */
static int there[2], back[2];

static void *answer(void *unused) {
    (void)unused;
    unsigned seed = 7;
    for (;;) {
        unsigned value;
        ssize_t got = read(there[0], &value, sizeof value);
        expect(got == sizeof value, "read", got < 0 ? errno : got);
        churn(&seed);
        value = ~value;
        ssize_t put = write(back[1], &value, sizeof value);
        expect(put == sizeof value, "write", put < 0 ? errno : put);
    }
    return NULL;
}

static void wait_pipe(void) {
    static unsigned next;
    unsigned value = next++, answer = 0;
    if (write(there[1], &value, sizeof value) != sizeof value)
        expect(0, "write there", errno);
    ssize_t got = read(back[0], &answer, sizeof answer);
    expect(got == sizeof answer && answer == ~value, "answer", got < 0 ? errno : answer);
}

static int listening;

static void *connect_again(void *address) {
    unsigned seed = 9;
    for (;;) {
        int socket_ = socket(AF_INET, SOCK_STREAM, 0);
        int result = connect(socket_, address, sizeof(struct sockaddr_in));
        expect(result == 0, "connect", errno);
        char byte = 0;
        ssize_t got = recv(socket_, &byte, 1, 0);
        expect(got == 1 && byte == 'x', "recv", got < 0 ? errno : got);
        churn(&seed);
        close(socket_);
        nanosleep(&SHORT, NULL);
    }
    return NULL;
}

static void wait_accept(void) {
    int connection = accept(listening, NULL, NULL);
    expect(connection >= 0, "accept", errno);
    ssize_t put = send(connection, "x", 1, MSG_NOSIGNAL);
    expect(put == 1, "send", put < 0 ? errno : put);
    close(connection);
}

/* All sixteen AVX registers, the general ones that a call keeps and does not keep, and the red zone hold a pattern
 * over many system calls. Returns how many words were not as they should be. */
static long registers_kept(unsigned long pattern, long calls) {
    long bad;
    __asm__ volatile(
        "mov %[pattern], %%r12\n\t"
        "mov %[calls], %%r13\n\t"
        "xor %%r14d, %%r14d\n\t"
        "vmovq %%r12, %%xmm0\n\t"
        "vpbroadcastq %%xmm0, %%ymm0\n\t"
        ".irp n, 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n\t"
        "vmovdqa %%ymm0, %%ymm\\n\n\t"
        ".endr\n\t"
        /* Another pattern: that of the vector registers is in the frame as well. */
        "lea 1(%%r12), %%rax\n\tmov %%rax, -8(%%rsp)\n\tmov %%rax, -64(%%rsp)\n\tmov %%rax, -128(%%rsp)\n\t"
        "mov %%r12, %%rbx\n\tmov %%r12, %%r8\n\tmov %%r12, %%r9\n\tmov %%r12, %%r10\n\tmov %%r12, %%r15\n\t"
        "mov %%r12, %%rdi\n\tmov %%r12, %%rsi\n\tmov %%r12, %%rdx\n\t"
        "1: mov $39, %%eax\n\t" /* getpid, which looks at no argument */
        "syscall\n\t"
        "lea 1(%%r12), %%rax\n\tcmp %%rax, -8(%%rsp)\n\tsetne %%al\n\tmovzbl %%al, %%eax\n\tadd %%rax, %%r14\n\t"
        "lea 1(%%r12), %%rax\n\tcmp %%rax, -64(%%rsp)\n\tsetne %%al\n\tmovzbl %%al, %%eax\n\tadd %%rax, %%r14\n\t"
        "lea 1(%%r12), %%rax\n\tcmp %%rax, -128(%%rsp)\n\tsetne %%al\n\tmovzbl %%al, %%eax\n\tadd %%rax, %%r14\n\t"
        ".irp r, rbx,r8,r9,r10,r15,rdi,rsi,rdx\n\t"
        "cmp %%r12, %%\\r\n\tsetne %%al\n\tmovzbl %%al, %%eax\n\tadd %%rax, %%r14\n\t"
        ".endr\n\t"
        "dec %%r13\n\t"
        "jnz 1b\n\t"
        ".irp n, 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n\t"
        "vpxor %%ymm0, %%ymm\\n, %%ymm\\n\n\t"
        "vptest %%ymm\\n, %%ymm\\n\n\tsetnz %%al\n\tmovzbl %%al, %%eax\n\tadd %%rax, %%r14\n\t"
        ".endr\n\t"
        "vmovq %%xmm0, %%rax\n\tcmp %%r12, %%rax\n\tsetne %%al\n\tmovzbl %%al, %%eax\n\tadd %%rax, %%r14\n\t"
        "vextracti128 $1, %%ymm0, %%xmm0\n\t"
        "vpextrq $1, %%xmm0, %%rax\n\tcmp %%r12, %%rax\n\tsetne %%al\n\tmovzbl %%al, %%eax\n\tadd %%rax, %%r14\n\t"
        "mov %%r14, %[bad]\n\t"
        "vzeroupper\n\t"
        : [bad] "=m"(bad)
        : [pattern] "m"(pattern), [calls] "m"(calls)
        : "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "memory", "cc",
          "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",
          "xmm13", "xmm14", "xmm15");
    return bad;
}

static void wait_registers(void) {
    static unsigned long pattern = 0x9e3779b97f4a7c15;
    pattern = pattern * 6364136223846793005ul + 1;
    long bad = registers_kept(pattern, 20000);
    expect(bad == 0, "registers", bad);
}

struct kind {
    const char *name;
    void (*wait)(void);
};
static const struct kind KINDS[] = {
    {"nanosleep", wait_nanosleep}, {"clock_nanosleep", wait_clock_nanosleep}, {"poll", wait_poll}, {"ppoll", wait_ppoll},
    {"select", wait_select},       {"futex", wait_futex},     {"condition", wait_condition}, {"epoll", wait_epoll},
    {"semaphore", wait_semaphore}, {"signal", wait_signal},   {"receive", wait_receive},     {"pipe", wait_pipe},
    {"accept", wait_accept},       {"registers", wait_registers},
};
enum { ALL = sizeof KINDS / sizeof KINDS[0] };

static void *repeat(void *kind) {
    unsigned seed = (unsigned)(size_t)kind;
    for (;;) {
        ((const struct kind *)kind)->wait();
        churn(&seed);
    }
    return NULL;
}

static void report(void) {
    printf("%lu %lu %s %lld\n", atomic_load(&rounds), atomic_load(&wrong), what, (long long)atomic_load(&detail));
    fflush(stdout);
}

int main(int argc, char **argv) {
    pthread_t thread;
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR2);
    sigprocmask(SIG_BLOCK, &one, NULL);
    /* "alone KIND": one thread, which does nothing else. */
    int only = argc > 2 && strcmp(argv[1], "alone") == 0;
    const char *picked = argc > 1 ? argv[argc - 1] : NULL;
    int wants_pipe = !picked || strcmp(picked, "pipe") == 0, wants_accept = !picked || strcmp(picked, "accept") == 0;
    if (wants_pipe) {
        if (pipe(there) || pipe(back))
            return 1;
        pthread_create(&thread, NULL, answer, NULL);
    }
    static struct sockaddr_in address = {.sin_family = AF_INET};
    if (wants_accept) {
        socklen_t bytes = sizeof address;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        listening = socket(AF_INET, SOCK_STREAM, 0);
        if (bind(listening, (void *)&address, sizeof address) || listen(listening, 8) ||
            getsockname(listening, (void *)&address, &bytes))
            return 1;
        pthread_create(&thread, NULL, connect_again, &address);
    }
    if (only) {
        /* A single thread: it answers between two waits. */
        fcntl(0, F_SETFL, O_NONBLOCK);
        puts("ready");
        fflush(stdout);
        unsigned seed = 3;
        for (;;) {
            for (int i = 0; i < ALL; i++)
                if (strcmp(KINDS[i].name, picked) == 0)
                    KINDS[i].wait();
            churn(&seed);
            char line;
            ssize_t got = read(0, &line, 1);
            if (got == 1)
                report();
            else if (got == 0)
                return 0;
        }
    }
    for (int i = 0; i < ALL; i++)
        if (!picked || strcmp(KINDS[i].name, picked) == 0)
            pthread_create(&thread, NULL, repeat, (void *)&KINDS[i]);
    puts("ready");
    fflush(stdout);
    char line;
    while (read(0, &line, 1) == 1)
        report();
    return 0;
}
