/* A seccomp filter that answers the named calls with an errno and lets all others
 * pass. There is no way to take it off again. */
#include "return/return.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* One number on every architecture (Linux 5.10); older headers lack the name. */
#ifndef SYS_process_madvise
#define SYS_process_madvise 440
#endif

static const struct {
    const char *name;
    long number;
} calls[] = {
    {"process_madvise", SYS_process_madvise},
    {"membarrier", SYS_membarrier},
    {"madvise", SYS_madvise},
    {"mremap", SYS_mremap},
};

static void fail(const char *what, const char *detail)
{
    dprintf(2, "return: %s %s\n", what, detail);
    _exit(64);
}

static long call_number(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (strlen(calls[i].name) == length && memcmp(calls[i].name, name, length) == 0)
            return calls[i].number;
    fail("cannot refuse this call:", name);
    return -1;
}

enum { REFUSED_MOST = 16 };

struct refusal {
    long number;
    int answer;
};

static unsigned short parse(const char *list, struct refusal *refused)
{
    unsigned short count = 0;
    for (const char *at = list; *at;) {
        size_t item = strcspn(at, ",");
        size_t name = strcspn(at, ":,");
        int answer = EPERM;
        if (name < item) {
            if (item - name == 7 && memcmp(at + name, ":ENOSYS", 7) == 0)
                answer = ENOSYS;
            else if (item - name != 6 || memcmp(at + name, ":EPERM", 6) != 0)
                fail("the errno must be EPERM or ENOSYS:", at);
        }
        if (count == REFUSED_MOST)
            fail("too many calls to refuse:", list);
        refused[count].number = call_number(at, name);
        refused[count].answer = answer;
        count++;
        at += item + (at[item] == ',');
    }
    return count;
}

void refuse_calls(const char *list)
{
    struct refusal refused[REFUSED_MOST];
    struct sock_filter program[2 + 2 * REFUSED_MOST];
    unsigned short length = 0, count = parse(list, refused);
    program[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (unsigned short i = 0; i < count; i++) {
        program[length++] = (struct sock_filter)BPF_JUMP(
            BPF_JMP | BPF_JEQ | BPF_K, (unsigned)refused[i].number, 0, 1);
        program[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)refused[i].answer);
    }
    program[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);

    struct sock_fprog filter = {length, program};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
        || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) != 0)
        fail("cannot install the seccomp filter:", strerror(errno));
}

void refusal_check(const char *list)
{
    struct refusal refused[REFUSED_MOST];
    unsigned short count = parse(list, refused);
    /* With these arguments the kernel itself would answer EINVAL or EBADF. */
    for (unsigned short i = 0; i < count; i++)
        if (syscall(refused[i].number, -1, -1, -1, -1, -1, -1) != -1 || errno != refused[i].answer)
            fail("the filter does not refuse:", list);
}
