/* Filters that kill the process. "files" kills for calls an allocator has no business with once it
 * runs: files, sockets, new programs. "sandbox" allows only what a privilege-separated daemon
 * (OpenSSH's pre-authentication child) allows, so no clone, no membarrier, no prctl: the process has
 * used the allocator before, and goes on under the filter. "unseen" is the same sandbox, installed
 * as libseccomp does it: the promise of no new privileges by prctl, the filter by a raw call. */
#include "check.h"
#include "filter.h"

static void burst(uint64_t seed) {
    enum { BLOCKS = 40000 };
    /* Two threads are in here at once, and both lists are no part of the heap. */
    size_t bytes = BLOCKS * (sizeof(void *) + sizeof(size_t));
    void **block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(block != MAP_FAILED);
    size_t *size = (size_t *)(block + BLOCKS);
    for (size_t i = 0; i < BLOCKS; i++) {
        size[i] = 1 + next_random(&seed) % 3000;
        block[i] = malloc(size[i]);
        CHECK(block[i] != NULL);
        fill(block[i], size[i]);
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        CHECK(holds(block[i], size[i]));
        free(block[i]);
    }
    CHECK(munmap(block, bytes) == 0);
    void *large = malloc(20 * MIB);
    CHECK(large != NULL);
    large = realloc(large, 50 * MIB);
    CHECK(large != NULL);
    free(large);
    free(aligned_alloc(MIB, MIB));
}

static void *burst_in_thread(void *seed) {
    burst((uintptr_t)seed);
    return NULL;
}

static const int no_business[] = {
#ifdef SYS_open
    SYS_open, SYS_creat, SYS_unlink, SYS_readlink, SYS_vfork,
#endif
    SYS_openat, SYS_socket, SYS_connect, SYS_bind, SYS_execve, SYS_execveat, SYS_ptrace, SYS_kill,
    SYS_tgkill, SYS_pipe2, SYS_eventfd2, SYS_memfd_create, SYS_readlinkat, SYS_perf_event_open,
    SYS_bpf, SYS_setrlimit,
};

static const int sandbox_allows[] = {
    SYS_read, SYS_write, SYS_close, SYS_exit, SYS_exit_group, SYS_brk, SYS_mmap, SYS_munmap,
    SYS_mremap, SYS_mprotect, SYS_madvise, SYS_futex, SYS_clock_gettime, SYS_gettimeofday,
    SYS_nanosleep, SYS_clock_nanosleep, SYS_getpid, SYS_gettid, SYS_getuid, SYS_getrandom,
    SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_ppoll,
#ifdef SYS_poll
    SYS_poll, SYS_select, SYS_time,
#endif
    SYS_writev, SYS_pselect6, SYS_shutdown,
};

int main(int count, char **arguments) {
    require_preload();
    CHECK(count == 2);
    int sandbox = strcmp(arguments[1], "files") != 0;
    raw_seccomp = strcmp(arguments[1], "unseen") == 0;
    burst(1);
    burst(2);
    if (sandbox)
        install_filter(sandbox_allows, sizeof sandbox_allows / sizeof *sandbox_allows,
                       SECCOMP_RET_ALLOW, SECCOMP_RET_KILL_PROCESS);
    else
        install_filter(no_business, sizeof no_business / sizeof *no_business,
                       SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_ALLOW);
    for (uint64_t round = 3; round < 9; round++) {
        burst(round);
        sleep_ms(500);
    }
    if (!sandbox) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, burst_in_thread, (void *)10) == 0);
        burst(11);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    errno = 0;
    CHECK(malloc((size_t)PTRDIFF_MAX) == NULL && errno == ENOMEM);
    return passed();
}
