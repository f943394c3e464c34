/* Storms of new processes: six threads that make them, each scene's own threads beside them, and a watchdog that turns a
 * hang into a failure with a line about what each thread was at. */
#include "check.h"
#include <spawn.h>
#include <stdatomic.h>

extern char **environ;

enum { FORKERS = 6, HANG_SECONDS = 30 };

static const char *volatile phase[FORKERS];
static atomic_long made;
static long wanted;
static atomic_int storm_over;

/* Allocates nothing: it must speak when nobody else can. */
static inline void *watch(void *unused) {
    (void)unused;
    long seen = -1, quiet = 0;
    while (!atomic_load(&storm_over)) {
        sleep_ms(100);
        long now = atomic_load(&made);
        quiet = now == seen ? quiet + 1 : 0;
        seen = now;
        if (quiet < HANG_SECONDS * 10) continue;
        char line[256];
        snprintf(line, sizeof line, "no new process for %d s after %ld of %ld\n", HANG_SECONDS, now,
                 wanted);
        say(line);
        for (int i = 0; i < FORKERS; i++) {
            snprintf(line, sizeof line, "thread %d: %s\n", i, phase[i]);
            say(line);
        }
        _exit(97);
    }
    return NULL;
}

static inline void end_child(void) {
    alarm(HANG_SECONDS);
    struct churn set;
    churn_start(&set, (uint64_t)getpid());
    for (int i = 0; i < 60; i++) churn_step(&set);
    churn_end(&set);
    _exit(0);
}

static inline pid_t bare_fork(int form) {
#ifdef __GLIBC__
    if (form == 0) return _Fork();
#endif
    (void)form;
    return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

/* One process of each form in turn; most are forks, since what is started by exec takes long. */
static inline void make_process(int forker, long turn) {
    static char *const truth[] = {(char *)"/bin/true", NULL};
    pid_t child = -1;
    int status = 0;
    switch (turn % 60) {
    case 7:
        phase[forker] = "posix_spawn";
        CHECK(posix_spawn(&child, truth[0], NULL, NULL, truth, environ) == 0);
        break;
    case 17:
        phase[forker] = "system";
        status = system("exit 0");
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        return;
    case 27: {
        phase[forker] = "popen";
        FILE *pipe = popen("echo x", "r");
        CHECK(pipe != NULL && fgetc(pipe) == 'x');
        phase[forker] = "pclose";
        CHECK(pclose(pipe) == 0);
        return;
    }
    case 37:
        phase[forker] = "vfork";
        child = vfork();
        if (child == 0) {
            execve(truth[0], truth, environ);
            _exit(1);
        }
        break;
    case 12:
    case 22:
    case 32:
    case 42:
    case 52:
        phase[forker] = "a fork without handlers";
        child = bare_fork(turn % 4 == 0);
        if (child == 0) end_child();
        break;
    default:
        phase[forker] = "fork";
        child = fork();
        if (child == 0) end_child();
    }
    CHECK(child > 0);
    phase[forker] = "waiting for its child";
    reap(child);
}

static inline void *keep_forking(void *number) {
    int forker = (int)(intptr_t)number;
    void *block[40];
    for (long turn = forker * 10;; turn++) {
        phase[forker] = "malloc and free";
        for (size_t i = 0; i < 40; i++) CHECK((block[i] = malloc(3000)) != NULL);
        for (size_t i = 0; i < 40; i++) free(block[i]);
        if (atomic_fetch_add(&made, 1) >= wanted) return NULL;
        make_process(forker, turn);
    }
}

/* Makes `rounds` times 1000 processes while `other[i]` run, which end once `storm_over` says so. */
static inline void storm(long rounds, void *(*const *other)(void *), size_t others) {
    wanted = rounds * 1000;
    pthread_t watchdog, forker[FORKERS], thread[16];
    for (int i = 0; i < FORKERS; i++) phase[i] = "nothing yet";
    CHECK(pthread_create(&watchdog, NULL, watch, NULL) == 0);
    for (size_t i = 0; i < others; i++)
        CHECK(pthread_create(&thread[i], NULL, other[i], (void *)(i + 1)) == 0);
    for (int i = 0; i < FORKERS; i++)
        CHECK(pthread_create(&forker[i], NULL, keep_forking, (void *)(intptr_t)i) == 0);
    for (int i = 0; i < FORKERS; i++) CHECK(pthread_join(forker[i], NULL) == 0);
    atomic_store(&storm_over, 1);
    for (size_t i = 0; i < others; i++) CHECK(pthread_join(thread[i], NULL) == 0);
    CHECK(pthread_join(watchdog, NULL) == 0);
}
