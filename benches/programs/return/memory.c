/* Reads /proc/self/smaps_rollup and /proc/self/statm through a buffer of its own:
 * stdio would allocate, and the figures are about the allocator. A file that
 * cannot be read ends the program: a zero would be taken for a result. */
#include "return/memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void read_whole(const char *path, char *text, size_t capacity)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    size_t length = 0;
    if (file >= 0) {
        ssize_t got;
        while (length + 1 < capacity && (got = read(file, text + length, capacity - 1 - length)) > 0)
            length += (size_t)got;
        close(file);
    }
    if (length == 0) {
        dprintf(2, "return: cannot read %s\n", path);
        _exit(3);
    }
    text[length] = '\0';
}

static long kib_field(const char *text, const char *name, int required)
{
    const char *at = strstr(text, name);
    if (!at) {
        if (!required)
            return 0;
        dprintf(2, "return: no %s in smaps_rollup\n", name);
        _exit(3);
    }
    return strtol(at + strlen(name), NULL, 10) * 1024;
}

struct memory_reading memory_read(void)
{
    char text[8192];
    struct memory_reading reading;
    read_whole("/proc/self/smaps_rollup", text, sizeof text);
    reading.rss_bytes = kib_field(text, "\nRss:", 1);
    reading.anonymous_bytes = kib_field(text, "\nAnonymous:", 1);
    reading.lazy_free_bytes = kib_field(text, "\nLazyFree:", 0);
    read_whole("/proc/self/statm", text, sizeof text);
    const char *second = strchr(text, ' ');
    reading.statm_bytes = second ? strtol(second, NULL, 10) * sysconf(_SC_PAGESIZE) : 0;
    return reading;
}
