/* Seccomp filters of the suite: one that answers some system calls with an errno, one that kills for what is listed,
 * one that kills for all but what is listed. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

enum { FILTER_MOST = 80 };

/* Whether the filter is installed by the system call seccomp, which libc has no function for. */
static int raw_seccomp;

static inline void install_filter(const int *call, size_t calls, unsigned when_listed, unsigned otherwise) {
    struct sock_filter program[FILTER_MOST + 3];
    size_t used = 0;
    CHECK(calls <= FILTER_MOST);
    program[used++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < calls; i++)
        program[used++] =
            (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call[i], (unsigned char)(calls - i), 0);
    program[used++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, otherwise);
    program[used++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, when_listed);
    struct sock_fprog filter = {(unsigned short)used, program};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    if (raw_seccomp) CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) == 0);
    else CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
}

#ifndef SECCOMP_RET_KILL_PROCESS
#define SECCOMP_RET_KILL_PROCESS 0x80000000U
#endif
#ifndef SYS_process_madvise
#define SYS_process_madvise 440
#endif
#ifndef SYS_clone3
#define SYS_clone3 435
#endif

/* Answers the named calls ("process_madvise+membarrier", "clone") with this error. */
static inline void refuse(const char *names, int error) {
    int call[8];
    size_t calls = 0;
    if (strstr(names, "process_madvise")) call[calls++] = SYS_process_madvise;
    if (strstr(names, "membarrier")) call[calls++] = SYS_membarrier;
    if (strstr(names, "clone")) {
        call[calls++] = SYS_clone;
        call[calls++] = SYS_clone3;
    }
    CHECK(calls > 0);
    install_filter(call, calls, SECCOMP_RET_ERRNO | (unsigned)error, SECCOMP_RET_ALLOW);
}
