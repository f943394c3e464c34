/* experimental.hooks.prof_backtrace and prof_dump: the program's own walk of stacks, and its ear
 * for dumps. Every allocation is sampled. */
#include "control.h"

typedef void (*walk_stack)(void **frames, unsigned *depth, unsigned most);
typedef void (*after_dump)(const char *file);

static walk_stack default_walk;
/* The compiler thinks that malloc does not come here. */
static __thread volatile bool marks;
static volatile int walks, dumps;
static char dumped[256];

/* Blocks that the program marks come from a stack that nobody has. */
static void walk(void **frames, unsigned *depth, unsigned most) {
    walks = walks + 1;
    CHECK(most >= 2);
    if (marks) {
        frames[0] = (void *)0x1234567;
        frames[1] = (void *)0x7654321;
        *depth = 2;
    } else {
        default_walk(frames, depth, most);
        CHECK(*depth > 0 && *depth <= most);
    }
}

static void listen(const char *file) {
    dumps = dumps + 1;
    CHECK(strlen(file) < sizeof dumped);
    strcpy(dumped, file);
}

static bool file_has(const char *file, const char *text) {
    static char content[1 << 20];
    int opened = open(file, O_RDONLY);
    CHECK(opened >= 0);
    size_t length = 0;
    ssize_t got;
    while ((got = read(opened, content + length, sizeof content - 1 - length)) > 0)
        length += (size_t)got;
    close(opened);
    content[length] = 0;
    return strstr(content, text) != NULL;
}

int main(void) {
    require_preload();
    const char *walking = "experimental.hooks.prof_backtrace";
    const char *listening = "experimental.hooks.prof_dump";
    CHECK(mallctl(walking, NULL, NULL, NULL, 0) == EINVAL);
    CHECK(mallctl(listening, NULL, NULL, NULL, 0) == EINVAL);
    walk_stack none = NULL, own = walk;
    CHECK(mallctl(walking, NULL, NULL, &none, sizeof none) == EINVAL);
    CHECK(mallctl(walking, NULL, NULL, &own, sizeof own - 1) == EINVAL);
    CHECK(mallctl(listening, NULL, NULL, &own, sizeof own - 1) == EINVAL);

    default_walk = GET(walk_stack, walking);
    CHECK(default_walk != NULL);
    CHECK(SWAP(walk_stack, walking, own) == default_walk);
    CHECK(GET(walk_stack, walking) == own);
    void *volatile plain = malloc(3000);
    CHECK(walks == 1);
    marks = true;
    void *volatile marked = malloc(5000);
    marks = false;
    CHECK(walks == 2);

    CHECK(GET(after_dump, listening) == NULL);
    SET(after_dump, listening, listen);
    const char *file = "by-name.heap";
    SET(const char *, "prof.dump", file);
    CHECK(dumps == 1 && strcmp(dumped, file) == 0);
    CHECK(file_has(file, "@ 0x1234567 0x7654321\n"));
    SET(const char *, "prof.dump", NULL);
    CHECK(dumps == 2 && strncmp(dumped, "heap.", 5) == 0);
    CHECK(file_has(dumped, "@ 0x1234567 0x7654321\n"));
    after_dump deaf = NULL;
    CHECK(SWAP(after_dump, listening, deaf) == listen);
    SET(const char *, "prof.dump", file);
    CHECK(dumps == 2);

    SET(walk_stack, walking, default_walk);
    int before = walks;
    free(plain);
    plain = malloc(3000);
    CHECK(walks == before);
    free(plain);
    free(marked);
    return passed();
}
