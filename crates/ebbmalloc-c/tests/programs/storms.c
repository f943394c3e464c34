/* Storms of new processes, and hundreds of threads that part at once. */
#include "check.h"
#include <locale.h>
#include <sched.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/prctl.h>

extern char **environ;

enum { FORKERS = 6, HANG_SECONDS = 30 };

static const char *volatile phase[FORKERS];
static const char *awaited;
static long wanted;
static atomic_long done;
static atomic_int over;

/* Turns a hang into a failure with a line about what each thread was at. Allocates nothing, so that it can print when
 * no other thread can. */
static void *watch(void *unused) {
    (void)unused;
    long seen = -1, quiet = 0;
    while (!atomic_load(&over)) {
        sleep_ms(100);
        long now = atomic_load(&done);
        quiet = now == seen ? quiet + 1 : 0;
        seen = now;
        if (quiet < HANG_SECONDS * 10) continue;
        char line[256];
        snprintf(line, sizeof line, "no %s for %d s after %ld\n", awaited, HANG_SECONDS, now);
        say(line);
        for (int i = 0; i < FORKERS && phase[i] != NULL; i++) {
            snprintf(line, sizeof line, "thread %d: %s\n", i, phase[i]);
            say(line);
        }
        _exit(97);
    }
    return NULL;
}

static void end_child(void) {
    alarm(HANG_SECONDS);
    churn((uint64_t)getpid(), 60);
    _exit(0);
}

/* One process of each form in turn; most are forks, since what is started by exec takes long. */
static void make_process(int forker, long turn) {
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
        child = bare_fork(turn % 4 != 0);
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

static void *keep_forking(void *number) {
    int forker = (int)(intptr_t)number;
    void *block[40];
    for (long turn = forker * 10;; turn++) {
        phase[forker] = "malloc and free";
        for (size_t i = 0; i < 40; i++) block[i] = MUST(malloc(3000));
        for (size_t i = 0; i < 40; i++) free(block[i]);
        if (atomic_fetch_add(&done, 1) >= wanted) return NULL;
        make_process(forker, turn);
    }
}

static void *keep_allocating(void *seed) {
    struct churn set;
    churn_start(&set, (uintptr_t)seed);
    while (!atomic_load(&over)) {
        churn_steps(&set, 200);
        usleep(200);
    }
    churn_end(&set);
    return NULL;
}

static void *allocate_little(void *seed) {
    churn((uintptr_t)seed, 100);
    return NULL;
}

static void *keep_starting(void *unused) {
    (void)unused;
    while (!atomic_load(&over)) {
        run_threads(4, allocate_little);
    }
    return NULL;
}

static FILE *lines(void) {
    FILE *file = tmpfile();
    CHECK(file != NULL);
    for (int i = 0; i < 20; i++) CHECK(fprintf(file, "%0*d\n", 100 * i + 10, i) > 0);
    return file;
}

static void *keep_reading(void *unused) {
    (void)unused;
    FILE *file = lines();
    while (!atomic_load(&over)) {
        rewind(file);
        char *line = NULL;
        size_t room = 0;
        while (getline(&line, &room, file) > 0) {
            free(line);
            line = NULL;
            room = 0;
        }
        free(line);
    }
    fclose(file);
    return NULL;
}

static void *keep_flushing(void *unused) {
    (void)unused;
    while (!atomic_load(&over)) {
        fflush(NULL);
        usleep(50);
    }
    return NULL;
}

static void *keep_opening(void *unused) {
    (void)unused;
    while (!atomic_load(&over)) {
        FILE *file = fopen("/proc/self/stat", "r");
        CHECK(file != NULL && fgetc(file) != EOF);
        fclose(file);
    }
    return NULL;
}

static void *keep_loading(void *unused) {
    (void)unused;
    while (!atomic_load(&over)) {
        dlclose(MUST(dlopen(arguments[2], RTLD_NOW)));
    }
    return NULL;
}

static void *keep_changing_locale(void *unused) {
    (void)unused;
    while (!atomic_load(&over)) {
        CHECK(setlocale(LC_ALL, "C.UTF-8") != NULL && setlocale(LC_ALL, "C") != NULL);
        locale_t made_here = newlocale(LC_ALL_MASK, "C.UTF-8", (locale_t)0);
        CHECK(made_here != (locale_t)0);
        freelocale(made_here);
    }
    return NULL;
}

/* What handlers leave to the handlers that run after the fork, the last first. */
static __thread struct churn *kept[2];
static __thread size_t depth;
static int handlers_allocate;

static void before(void) {
    if (!handlers_allocate) return;
    struct churn *set = malloc(sizeof *set);
    CHECK(set != NULL && depth < 2);
    kept[depth++] = set;
    churn_start(set, 5);
    churn_steps(set, 100);
}

static void after(void) {
    if (depth == 0) return;
    struct churn *set = kept[--depth];
    churn_steps(set, 100);
    churn_end(set);
    free(set);
}

/* More blocks than there are places outside the heap. */
static __thread void **many;
enum { MANY = 1500 };

static void many_before(void) {
    if (!handlers_allocate) return;
    many = MUST(malloc(MANY * sizeof *many));
    for (size_t i = 0; i < MANY; i++) many[i] = MUST(malloc(20 + i % 700));
}

static void many_after(void) {
    if (many == NULL) return;
    for (size_t i = 0; i < MANY; i++) free(many[i]);
    free(many);
    many = NULL;
}

/* The first code of the program that runs: what is registered here comes before the allocator's own. */
static void register_first(void) {
    pthread_atfork(before, after, after);
    pthread_atfork(many_before, many_after, many_after);
}
__attribute__((section(".preinit_array"), used)) static void (*const first)(void) = register_first;

typedef void *(*thread_main)(void *);

/* Six threads make processes in every way while two allocate and `other[i]` run. Argument: rounds of 1000 processes. */
static void storm(const thread_main *other, size_t others) {
    wanted = atol(arguments[1]) * 1000;
    awaited = "new process";
    pthread_t forker[FORKERS], allocating[2], thread[8];
    for (int i = 0; i < FORKERS; i++) phase[i] = "nothing yet";
    pthread_t watchdog = started(watch, NULL);
    start_all(allocating, 2, keep_allocating);
    for (size_t i = 0; i < others; i++) thread[i] = started(other[i], (void *)(i + 3));
    for (int i = 0; i < FORKERS; i++) forker[i] = started(keep_forking, (void *)(intptr_t)i);
    join_all(forker, FORKERS);
    atomic_store(&over, 1);
    join_all(allocating, 2);
    join_all(thread, others);
    join(watchdog);
}

/* Others start and end. */
static void threads(void) { storm((thread_main[]){keep_starting}, 1); }

/* Others hold the locks of files. */
static void stdio(void) {
    storm((thread_main[]){keep_reading, keep_reading, keep_reading, keep_reading, keep_flushing, keep_opening}, 6);
}

/* Others hold the locks of the loader, whose library walks the loader's list in its constructor, and of the locale.
 * Second argument: the library. */
static void loader(void) { storm((thread_main[]){keep_loading, keep_changing_locale}, 2); }

/* Handlers of fork allocate, before and after the allocator's own. */
static void handlers(void) {
    handlers_allocate = 1;
    CHECK(pthread_atfork(before, after, after) == 0);
    storm(NULL, 0);
}

/* Hundreds of threads part with what they share, or promise to gain no privileges, right after each has freed enough to
 * be worth the allocator's own thread: every call wants that thread gone. Arguments: unshare, setns or prctl; rounds of
 * 200 threads. */
enum { PARTING = 200 };

static int namespace_file;

static void *part(void *unused) {
    (void)unused;
    for (int i = 0; i < 20; i++) {
        char *block = MUST(malloc(300000));
        memset(block, 1, 300000);
        free(block);
    }
    void *block[300];
    for (int i = 0; i < 300; i++) block[i] = MUST(malloc(3000));
    for (int i = 0; i < 300; i++) free(block[i]);
    if (strcmp(awaited, "unshare") == 0) CHECK(unshare(CLONE_FS) == 0);
    else if (strcmp(awaited, "setns") == 0) CHECK(setns(namespace_file, 0) == 0 || errno == EPERM);
    else CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    atomic_fetch_add(&done, 1);
    return NULL;
}

static void parting(void) {
    awaited = arguments[1];
    namespace_file = open("/proc/self/ns/uts", O_RDONLY | O_CLOEXEC);
    CHECK(namespace_file >= 0);
    pthread_t watchdog = started(watch, NULL);
    for (long round = 0; round < atol(arguments[2]); round++) run_threads(PARTING, part);
    atomic_store(&over, 1);
    join(watchdog);
}

CASES(CASE(threads), CASE(stdio), CASE(loader), CASE(handlers), CASE(parting))
