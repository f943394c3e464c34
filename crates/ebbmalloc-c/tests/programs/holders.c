/* Hundreds of threads part with what they share, or promise to gain no privileges, right after each has freed enough to be worth the
 * allocator's own thread: every call wants that thread gone. Arguments: unshare, setns or prctl; rounds of 200 threads. */
#include "check.h"
#include <sched.h>
#include <stdatomic.h>
#include <sys/prctl.h>

enum { THREADS = 200, HANG_SECONDS = 30 };

static const char *call;
static int namespace_file;
static atomic_long done;
static atomic_int over;

static void *watch(void *unused) {
    (void)unused;
    long seen = -1;
    for (int quiet = 0; !atomic_load(&over); sleep_ms(100)) {
        long now = atomic_load(&done);
        quiet = now == seen ? quiet + 1 : 0;
        seen = now;
        if (quiet > HANG_SECONDS * 10) {
            char line[128];
            snprintf(line, sizeof line, "no %s came back for %d s after %ld\n", call, HANG_SECONDS,
                     now);
            say(line);
            _exit(97);
        }
    }
    return NULL;
}

static void *part(void *unused) {
    (void)unused;
    for (int i = 0; i < 20; i++) {
        char *block = malloc(300000);
        CHECK(block != NULL);
        memset(block, 1, 300000);
        free(block);
    }
    void *block[300];
    for (int i = 0; i < 300; i++) CHECK((block[i] = malloc(3000)) != NULL);
    for (int i = 0; i < 300; i++) free(block[i]);
    if (strcmp(call, "unshare") == 0)
        CHECK(unshare(CLONE_FS) == 0);
    else if (strcmp(call, "setns") == 0)
        CHECK(setns(namespace_file, 0) == 0 || errno == EPERM);
    else
        CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    atomic_fetch_add(&done, 1);
    return NULL;
}

int main(int count, char **arguments) {
    require_preload();
    CHECK(count == 3);
    call = arguments[1];
    namespace_file = open("/proc/self/ns/uts", O_RDONLY | O_CLOEXEC);
    CHECK(namespace_file >= 0);
    pthread_t watchdog, thread[THREADS];
    CHECK(pthread_create(&watchdog, NULL, watch, NULL) == 0);
    for (long round = 0; round < atol(arguments[2]); round++) {
        for (int i = 0; i < THREADS; i++)
            CHECK(pthread_create(&thread[i], NULL, part, NULL) == 0);
        for (int i = 0; i < THREADS; i++) CHECK(pthread_join(thread[i], NULL) == 0);
    }
    atomic_store(&over, 1);
    CHECK(pthread_join(watchdog, NULL) == 0);
    return passed();
}
