/* Seccomp filters, rights that are given up, and namespaces that are left. */
#include "check.h"
#include "blocks.h"
#include "filter.h"
#include <dirent.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/prctl.h>

/* Filters that kill the process. "files" kills for calls an allocator has no business with once it runs: files,
 * sockets, new programs. "sandbox" allows only what a privilege-separated daemon (OpenSSH's pre-authentication child)
 * allows, so no clone, no membarrier, no prctl: the process has used the allocator before, and goes on under the
 * filter. "unseen" is the same sandbox, installed as libseccomp does it: the promise of no new privileges by prctl, the
 * filter by a raw call. */
static void sandbox_burst(uint64_t seed) {
    enum { BLOCKS = 40000 };
    /* Two threads are in here at once, and both lists are no part of the heap. */
    void **block = pointers(2 * BLOCKS);
    size_t *size = (size_t *)(block + BLOCKS);
    for (size_t i = 0; i < BLOCKS; i++) {
        size[i] = 1 + next_random(&seed) % 3000;
        block[i] = FILLED(size[i]);
    }
    for (size_t i = 0; i < BLOCKS; i++) RELEASE(block[i], size[i]);
    CHECK(munmap(block, 2 * BLOCKS * sizeof *block) == 0);
    free(MUST(realloc(MUST(malloc(20 * MIB)), 50 * MIB)));
    free(aligned_alloc(MIB, MIB));
}

static void *burst_in_thread(void *seed) {
    sandbox_burst((uintptr_t)seed);
    return NULL;
}

static const int no_business[] = {
#ifdef SYS_open
    SYS_open,   SYS_creat,     SYS_unlink,  SYS_readlink, SYS_vfork,
#endif
    SYS_openat, SYS_socket,    SYS_connect, SYS_bind,     SYS_execve,       SYS_execveat,   SYS_ptrace,
    SYS_kill,   SYS_tgkill,    SYS_pipe2,   SYS_eventfd2, SYS_memfd_create, SYS_readlinkat, SYS_perf_event_open,
    SYS_bpf,    SYS_setrlimit,
};

static const int sandbox_allows[] = {
    SYS_read,           SYS_write,        SYS_close,     SYS_exit,
    SYS_exit_group,     SYS_brk,          SYS_mmap,      SYS_munmap,
    SYS_mremap,         SYS_mprotect,     SYS_madvise,   SYS_futex,
    SYS_clock_gettime,  SYS_gettimeofday, SYS_nanosleep, SYS_clock_nanosleep,
    SYS_getpid,         SYS_gettid,       SYS_getuid,    SYS_getrandom,
    SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_ppoll,
#ifdef SYS_poll
    SYS_poll,           SYS_select,       SYS_time,
#endif
    SYS_writev,         SYS_pselect6,     SYS_shutdown,
};

static void killed(void) {
    int sandbox = strcmp(arguments[1], "files") != 0;
    raw_seccomp = strcmp(arguments[1], "unseen") == 0;
    sandbox_burst(1);
    sandbox_burst(2);
    if (sandbox)
        install_filter(sandbox_allows, sizeof sandbox_allows / sizeof *sandbox_allows, SECCOMP_RET_ALLOW,
                       SECCOMP_RET_KILL_PROCESS);
    else
        install_filter(no_business, sizeof no_business / sizeof *no_business, SECCOMP_RET_KILL_PROCESS,
                       SECCOMP_RET_ALLOW);
    for (uint64_t round = 3; round < 9; round++) {
        sandbox_burst(round);
        sleep_ms(500);
    }
    if (!sandbox) {
        pthread_t thread = started(burst_in_thread, (void *)10);
        sandbox_burst(11);
        join(thread);
    }
    REFUSED(malloc((size_t)PTRDIFF_MAX), ENOMEM);
}

/* Under a filter that refuses what the allocator would like to use, installed before the program starts (it installs
 * the filter and executes itself) or while it runs: everything still works, and where a purger can exist 90 % of a
 * burst come back within 30 s; without clone, a burst comes back when the program goes on allocating. Arguments: names,
 * EPERM or ENOSYS, before or late. */
extern char **environ;

static void *allocate(void *seed) {
    churn((uintptr_t)seed, 30000);
    return NULL;
}

static size_t base; /* resident before anything was allocated */

static void *kib_block[128 << 10];

static void burst(size_t blocks) {
    take(kib_block, blocks, 1024, 1);
    give_back(kib_block, blocks);
}

static void burst_returns(void) {
    enum { BLOCKS = 128 << 10 };
    take(kib_block, BLOCKS, 1024, 1);
    size_t peak = resident_bytes();
    CHECK(peak > base + 100 * MIB);
    give_back(kib_block, BLOCKS);
    churn_until_resident(base + (peak - base) / 6, 500, 30);
}

static void refused(void) {
    int error = strcmp(arguments[2], "EPERM") == 0 ? EPERM : ENOSYS;
    int inside = getenv("EBB_TEST_FILTERED") != NULL;
    int cloning = strstr(arguments[1], "clone") == NULL;
    if (strcmp(arguments[3], "before") == 0 && !inside) {
        CHECK(setenv("EBB_TEST_FILTERED", "1", 1) == 0);
        refuse(arguments[1], error);
        execve("/proc/self/exe", arguments - 1, environ);
        CHECK(!"execve came back");
    }
    base = resident_bytes();
    allocate((void *)1);
    if (!inside) {
        burst_returns();
        refuse(arguments[1], error);
    }
    errno = 0;
    if (!cloning) CHECK(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) == -1 && errno == error);
    pthread_t thread[4];
    if (cloning) start_all(thread, 4, allocate);
    allocate((void *)7);
    if (cloning) join_all(thread, 4);
    burst_returns();
    if (cloning) {
        pid_t child = forked();
        if (child == 0) {
            allocate((void *)8);
            _exit(0);
        }
        reap(child);
    }
}

/* A program that takes privileges from itself must have no thread left that still has them: filters and the promise of
 * no new privileges are a thread's own. Memory comes back all the same when the program goes on allocating. A refused
 * prctl, or one in a child of vfork, changes nothing. */
static int threads(void) {
    char text[4096];
    read_text("/proc/self/status", text, sizeof text);
    const char *line = MUST(strstr(text, "\nThreads:"));
    return atoi(line + 9);
}

static void no_new_privileges(void) {
    size_t base = resident_bytes();
    burst(64 << 10);
    CHECK(threads() == 2);

    CHECK(prctl(PR_SET_SECCOMP, 2, NULL) == -1 && errno == EFAULT);
    pid_t child = vfork();
    CHECK(child >= 0);
    if (child == 0) {
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        _exit(0);
    }
    reap(child);
    burst(64 << 10);
    CHECK(threads() == 2);

    CHECK(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
    CHECK(threads() == 1);
    burst(64 << 10);
    size_t peak = resident_bytes();
    CHECK(peak > base + 32 * MIB);
    churn_until_resident(base + (peak - base) / 4, 2000, 10);
    CHECK(threads() == 1);
}

/* A service that starts as root and goes on as somebody else: no thread of the process is root a second later, the
 * allocator's own neither, while the service goes on allocating. Needs root to show anything; without it there are no
 * rights to drop. */
/* How many threads there are, and how many of them are root. */
static void count_threads(int *all, int *root) {
    *all = *root = 0;
    DIR *folder = opendir("/proc/self/task");
    CHECK(folder != NULL);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (entry->d_name[0] == '.') continue;
        char path[300], text[4096];
        snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file < 0) continue;
        ssize_t length = read(file, text, sizeof text - 1);
        close(file);
        if (length <= 0) continue;
        text[length] = 0;
        const char *line = MUST(strstr(text, "\nUid:"));
        *all += 1;
        *root += strtol(line + 5, NULL, 10) == 0;
    }
    closedir(folder);
}

static void dropped_root(void) {
    if (geteuid() != 0) return;
    int all, root;
    double limit = now_seconds() + 5;
    do {
        burst(16 << 10);
        count_threads(&all, &root);
        CHECK(now_seconds() < limit);
    } while (all < 2);
    CHECK(root == all);
    CHECK(setgid(65534) == 0 && setuid(65534) == 0);
    limit = now_seconds() + 2;
    do {
        CHECK(now_seconds() < limit);
        burst(16 << 10);
        sleep_ms(20);
        count_threads(&all, &root);
    } while (root > 0);
    /* Its successor is as little root. */
    limit = now_seconds() + 3;
    do {
        CHECK(now_seconds() < limit);
        burst(16 << 10);
        sleep_ms(20);
        count_threads(&all, &root);
        CHECK(root == 0);
    } while (all < 2);
}

/* unshare and setns want a single-threaded process (and one that does not share its working directory): the
 * allocator's own thread must not prevent that, without a fork, neither at once after a burst was freed nor later.
 * Arguments: the form, milliseconds between burst and call. */
static int open_namespace(pid_t process, const char *kind) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/%s", (int)process, kind);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0);
    return file;
}

/* A process in namespaces of its own, to be joined. */
static pid_t start_neighbour(int flags) {
    int ready[2];
    CHECK(pipe(ready) == 0);
    pid_t child = forked();
    if (child == 0) {
        CHECK(unshare(flags) == 0);
        CHECK(write(ready[1], "x", 1) == 1);
        alarm(100);
        for (;;) pause();
    }
    char byte;
    CHECK(read(ready[0], &byte, 1) == 1);
    close(ready[0]);
    close(ready[1]);
    return child;
}

static void namespaces(void) {
    const char *form = arguments[1];
    pid_t neighbour = 0;
    int file = -1, kind = 0;
    if (strcmp(form, "setns_user") == 0) kind = CLONE_NEWUSER;
    if (strcmp(form, "setns_mount") == 0) kind = CLONE_NEWUSER | CLONE_NEWNS;
    if (kind != 0) {
        neighbour = start_neighbour(kind);
        file = open_namespace(neighbour, kind == CLONE_NEWUSER ? "user" : "mnt");
        if (kind != CLONE_NEWUSER) {
            /* The owner's rights in that namespace come with its user namespace. */
            int user = open_namespace(neighbour, "user");
            CHECK(setns(user, CLONE_NEWUSER) == 0);
            close(user);
        }
    }
    burst(64 << 10);
    sleep_ms(atol(arguments[2]));
    if (strcmp(form, "unshare_user") == 0) CHECK(unshare(CLONE_NEWUSER) == 0);
    else if (strcmp(form, "unshare_mount") == 0) CHECK(unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0);
    else CHECK(setns(file, kind == CLONE_NEWUSER ? CLONE_NEWUSER : CLONE_NEWNS) == 0);
    burst(64 << 10);
    churn(2, 10000);
    if (neighbour != 0) {
        CHECK(kill(neighbour, SIGKILL) == 0);
        waitpid(neighbour, NULL, 0);
    }
}

CASES(CASE(killed), CASE(refused), CASE(no_new_privileges), CASE(dropped_root), CASE(namespaces))
