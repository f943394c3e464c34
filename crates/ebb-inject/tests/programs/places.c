/* A process, of one thread as a rule, at a place where nothing may be called, by its first argument. Says "ready",
 * then answers a line by a line. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

static void say(const char *text) {
    if (write(1, text, strlen(text)) < 0)
        _exit(1);
}

/* Waits without end, so that its thread may be stopped at once. */
static void answer(void) {
    char line;
    say("ready\n");
    while (read(0, &line, 1) == 1)
        say("here\n");
}

static void handler(int signal) {
    (void)signal;
    answer();
    _exit(0);
}

static void on_its_own_stack(void) {
    static ucontext_t here, there;
    static char *stack;
    stack = malloc(1 << 20);
    getcontext(&there);
    there.uc_stack.ss_sp = stack;
    there.uc_stack.ss_size = 1 << 20;
    there.uc_link = &here;
    makecontext(&there, answer, 0);
    swapcontext(&here, &there);
}

/* Kills for one system call, allows all others. */
static void filter(unsigned call) {
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog whole = {sizeof program / sizeof program[0], program};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &whole))
        _exit(2);
}

static void *answers(void *unused) {
    answer();
    exit(0);
    return unused;
}

int main(int argc, char **argv) {
    const char *place = argc > 1 ? argv[1] : "plain";
    free(malloc(1 << 16));
    if (strcmp(place, "handler") == 0) {
        signal(SIGUSR1, handler);
        raise(SIGUSR1);
    } else if (strcmp(place, "alternate") == 0) {
        stack_t stack = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
        sigaltstack(&stack, NULL);
        struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
        sigaction(SIGUSR1, &action, NULL);
        raise(SIGUSR1);
    } else if (strcmp(place, "coroutine") == 0) {
        on_its_own_stack();
    } else if (strcmp(place, "filter-kills") == 0) {
        filter(SYS_madvise);
    } else if (strcmp(place, "filter-allows") == 0) {
        filter(SYS_reboot);
    } else if (strcmp(place, "strict") == 0) {
        say("ready\n");
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
        char line;
        while (read(0, &line, 1) == 1)
            say("here\n");
        syscall(SYS_exit, 0);
    } else if (strcmp(place, "vfork") == 0) {
        /* The parent waits; the child has its memory. The output is the child's pid. */
        if (vfork() == 0) {
            char text[32];
            snprintf(text, sizeof text, "%d\n", getpid());
            say(text);
            char line;
            while (read(0, &line, 1) == 1)
                say("here\n");
            _exit(0);
        }
        return 0;
    } else if (strcmp(place, "first-ended") == 0) {
        pthread_t other;
        pthread_create(&other, NULL, answers, NULL);
        pthread_exit(NULL);
    } else if (strcmp(place, "blocks-all") == 0) {
        unsigned long all = ~0ul;
        syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, NULL, 8);
    }
    answer();
    return 0;
}
