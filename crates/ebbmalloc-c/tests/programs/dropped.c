/* A service that starts as root and goes on as somebody else: no thread of the process is root a
 * second later, the allocator's own neither, while the service goes on allocating. Needs root to
 * show anything; without it there are no rights to drop. */
#include "check.h"
#include <dirent.h>

static void burst(void) {
    enum { BLOCKS = 16 << 10 };
    static void *block[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) {
        block[i] = malloc(1024);
        CHECK(block[i] != NULL);
        memset(block[i], 1, 1024);
    }
    for (size_t i = 0; i < BLOCKS; i++) free(block[i]);
}

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
        const char *line = strstr(text, "\nUid:");
        CHECK(line != NULL);
        *all += 1;
        *root += strtol(line + 5, NULL, 10) == 0;
    }
    closedir(folder);
}

int main(void) {
    require_preload();
    if (geteuid() != 0) return passed();
    int all, root;
    double limit = now_seconds() + 5;
    do {
        burst();
        count_threads(&all, &root);
        CHECK(now_seconds() < limit);
    } while (all < 2);
    CHECK(root == all);
    CHECK(setgid(65534) == 0 && setuid(65534) == 0);
    limit = now_seconds() + 2;
    do {
        CHECK(now_seconds() < limit);
        burst();
        sleep_ms(20);
        count_threads(&all, &root);
    } while (root > 0);
    /* Its successor is as little root. */
    limit = now_seconds() + 3;
    do {
        CHECK(now_seconds() < limit);
        burst();
        sleep_ms(20);
        count_threads(&all, &root);
        CHECK(root == 0);
    } while (all < 2);
    return passed();
}
