/* experimental.hooks: functions that are told of every request of every thread, with jemalloc's
 * words and numbers, which stand in its sources alone. */
#include "control.h"

/* The compiler knows what these cannot write to, and that hooks can it does not. */
static void *(*volatile by_malloc)(size_t) = malloc;
static void *(*volatile by_calloc)(size_t, size_t) = calloc;
static void *(*volatile realloc_itself)(void *, size_t) = realloc;
static void *(*volatile by_aligned_alloc)(size_t, size_t) = aligned_alloc;
static int (*volatile by_posix_memalign)(void **, size_t, size_t) = posix_memalign;
static void (*volatile by_free)(void *) = free;
#define malloc by_malloc
#define calloc by_calloc
#define realloc realloc_itself
#define aligned_alloc by_aligned_alloc
#define posix_memalign by_posix_memalign
#define free by_free

enum {
    ALLOC_MALLOC,
    ALLOC_POSIX_MEMALIGN,
    ALLOC_ALIGNED_ALLOC,
    ALLOC_CALLOC,
    ALLOC_MEMALIGN,
    ALLOC_VALLOC,
    ALLOC_MALLOCX,
    ALLOC_REALLOC,
    ALLOC_RALLOCX
};
enum { DALLOC_FREE, DALLOC_DALLOCX, DALLOC_SDALLOCX, DALLOC_REALLOC, DALLOC_RALLOCX };
enum { EXPAND_REALLOC, EXPAND_RALLOCX, EXPAND_XALLOCX };

struct hooks {
    void (*alloc)(void *extra, int type, void *result, uintptr_t raw, uintptr_t args[3]);
    void (*dalloc)(void *extra, int type, void *address, uintptr_t args[3]);
    void (*expand)(void *extra, int type, void *address, size_t before, size_t now, uintptr_t raw,
                   uintptr_t args[4]);
    void *extra;
};

/* What a hook was told. */
struct call {
    char what;
    int type;
    void *extra, *block;
    uintptr_t raw, args[4];
    size_t before, now;
};

static __thread struct call calls[16];
static __thread int told;
/* Requests that the hooks make themselves, all of which would come back if they were told of. */
static bool allocates;
/* Blocks are sampled: such a one lies elsewhere, moves when others do not, and has other sizes. */
static bool sampled;

static struct call *next(char what, int type, void *extra, void *block) {
    if (allocates) {
        void *volatile inner = malloc(100);
        inner = realloc(inner, 10000);
        inner = rallocx(inner, 1 << 20, 0);
        CHECK(inner != NULL);
        free(inner);
    }
    CHECK(told < 16);
    struct call *call = &calls[told++];
    memset(call, 0, sizeof *call);
    call->what = what;
    call->type = type;
    call->extra = extra;
    call->block = block;
    return call;
}

static void on_alloc(void *extra, int type, void *result, uintptr_t raw, uintptr_t args[3]) {
    struct call *call = next('a', type, extra, result);
    call->raw = raw;
    memcpy(call->args, args, 3 * sizeof *args);
}

static void on_dalloc(void *extra, int type, void *address, uintptr_t args[3]) {
    struct call *call = next('d', type, extra, address);
    memcpy(call->args, args, 3 * sizeof *args);
    /* Before the block is freed. */
    CHECK(malloc_usable_size(address) > 0);
}

static void on_expand(void *extra, int type, void *address, size_t before, size_t now,
                      uintptr_t raw, uintptr_t args[4]) {
    struct call *call = next('e', type, extra, address);
    call->before = before;
    call->now = now;
    call->raw = raw;
    memcpy(call->args, args, 4 * sizeof *args);
}

static struct hooks all(uintptr_t extra) {
    return (struct hooks){on_alloc, on_dalloc, on_expand, (void *)extra};
}

static int try_install(struct hooks hooks, void **handle) {
    size_t length = sizeof *handle;
    return mallctl("experimental.hooks.install", handle, &length, &hooks, sizeof hooks);
}

static void *install(struct hooks hooks) {
    void *handle = NULL;
    CHECK(try_install(hooks, &handle) == 0 && handle != NULL);
    return handle;
}

static void uninstall(void *handle) { SET(void *, "experimental.hooks.remove", handle); }

/* The only call since the last time, of this kind. */
static struct call *only(char what, int type) {
    CHECK(told == 1);
    told = 0;
    CHECK(calls[0].what == what && calls[0].type == type && calls[0].extra == (void *)123);
    return &calls[0];
}

static void was_allocated(int type, void *block, uintptr_t raw, uintptr_t first, uintptr_t second,
                          int args) {
    struct call *call = only('a', type);
    CHECK(block != NULL && call->block == block && call->raw == raw);
    CHECK(call->args[0] == first && (args < 2 || call->args[1] == second));
}

static void was_freed(int type, void *block) {
    struct call *call = only('d', type);
    CHECK(call->block == block && call->args[0] == (uintptr_t)block);
}

static void allocations(void) {
    void *volatile block;
    size_t sizes[] = {1, 100, 2000, 20000, 100000, 3 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int turn = 0; turn < 300; turn++) {
            size_t size = sizes[i];
            block = malloc(size);
            was_allocated(ALLOC_MALLOC, block, (uintptr_t)block, size, 0, 1);
            free(block);
            was_freed(DALLOC_FREE, block);
            block = calloc(3, size);
            was_allocated(ALLOC_CALLOC, block, (uintptr_t)block, 3, size, 2);
            CHECK(reads_zero(block, 0, 3 * size > 4096 ? 4096 : 3 * size));
            dallocx(block, MALLOCX_TCACHE_NONE);
            CHECK(calls[0].args[1] == (uintptr_t)MALLOCX_TCACHE_NONE);
            was_freed(DALLOC_DALLOCX, block);
            block = mallocx(size, 0);
            was_allocated(ALLOC_MALLOCX, block, (uintptr_t)block, size, 0, 2);
            sdallocx(block, size, 0);
            CHECK(calls[0].args[1] == size && calls[0].args[2] == 0);
            was_freed(DALLOC_SDALLOCX, block);
            if (turn > 3 && size > 20000) break;
        }
    int flags = MALLOCX_ALIGN(1024) | MALLOCX_ZERO;
    block = mallocx(100, flags);
    was_allocated(ALLOC_MALLOCX, block, (uintptr_t)block, 100, (uintptr_t)flags, 2);
    dallocx(block, 0);
    CHECK(calls[0].args[1] == 0);
    was_freed(DALLOC_DALLOCX, block);
    void *memory;
    int result = posix_memalign(&memory, 1024, 77);
    CHECK(calls[0].args[2] == 77);
    uintptr_t out = (uintptr_t)&memory;
    was_allocated(ALLOC_POSIX_MEMALIGN, memory, (uintptr_t)result, out, 1024, 2);
    free(memory);
    was_freed(DALLOC_FREE, memory);
    block = aligned_alloc(1024, 77);
    was_allocated(ALLOC_ALIGNED_ALLOC, block, (uintptr_t)block, 1024, 77, 2);
    free(block);
    was_freed(DALLOC_FREE, block);
    block = memalign(1024, 77);
    was_allocated(ALLOC_MEMALIGN, block, (uintptr_t)block, 1024, 77, 2);
    free(block);
    was_freed(DALLOC_FREE, block);
    block = valloc(77);
    was_allocated(ALLOC_VALLOC, block, (uintptr_t)block, 77, 0, 1);
    free(block);
    was_freed(DALLOC_FREE, block);
    /* What fails is told of as well, what frees nothing is not. */
    volatile size_t much = SIZE_MAX / 2;
    CHECK(malloc(much) == NULL);
    struct call *call = only('a', ALLOC_MALLOC);
    CHECK(call->block == NULL && call->raw == 0 && call->args[0] == much);
    CHECK(calloc(much, 4) == NULL);
    CHECK(only('a', ALLOC_CALLOC)->block == NULL);
    free(NULL);
    CHECK(told == 0);
}

static void realloc_as_malloc_and_free(void) {
    void *volatile block = realloc(NULL, 50);
    was_allocated(ALLOC_REALLOC, block, (uintptr_t)block, 0, 50, 2);
    void *volatile nothing = realloc(block, 0);
    CHECK(nothing == NULL && calls[0].args[1] == 0);
    was_freed(DALLOC_REALLOC, block);
    block = realloc(NULL, 0);
    was_allocated(ALLOC_REALLOC, block, (uintptr_t)block, 0, 0, 2);
    free(block);
    told = 0;
}

static void *by_realloc(void *block, size_t size) { return realloc(block, size); }
static void *by_rallocx(void *block, size_t size) { return rallocx(block, size, 0); }

static void mark(void *block, size_t size) {
    for (size_t i = 0; i < size; i++) ((unsigned char *)block)[i] = (unsigned char)(i * 31);
}

static bool is_marked(const void *block, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (((const unsigned char *)block)[i] != (unsigned char)(i * 31)) return false;
    return true;
}

/* From one size to another: told of as it went. */
static bool moves(void *(*change)(void *, size_t), bool plain, size_t from, size_t to) {
    void *volatile block = malloc(from);
    mark(block, from);
    size_t before = malloc_usable_size(block);
    told = 0;
    void *volatile changed = change(block, to);
    CHECK(changed != NULL && malloc_usable_size(changed) >= to);
    CHECK(is_marked(changed, from < to ? from : to));
    bool moved = changed != block;
    CHECK(told == 1 + moved);
    for (int i = 0; i < told; i++) {
        CHECK(calls[i].extra == (void *)123);
        CHECK(calls[i].args[0] == (uintptr_t)block && calls[i].args[1] == to);
    }
    if (moved) {
        CHECK(calls[0].what == 'a' && calls[0].type == (plain ? ALLOC_REALLOC : ALLOC_RALLOCX));
        CHECK(calls[0].block == changed && calls[0].raw == (uintptr_t)changed);
        CHECK(calls[1].what == 'd' && calls[1].type == (plain ? DALLOC_REALLOC : DALLOC_RALLOCX));
        CHECK(calls[1].block == block);
    } else {
        CHECK(calls[0].what == 'e' && calls[0].type == (plain ? EXPAND_REALLOC : EXPAND_RALLOCX));
        CHECK(calls[0].block == block && calls[0].raw == (uintptr_t)block);
        CHECK(calls[0].before == before || sampled);
        CHECK(calls[0].now == malloc_usable_size(changed) || sampled);
    }
    free(changed);
    told = 0;
    return moved;
}

static void reallocations(void) {
    for (int plain = 0; plain < 2; plain++) {
        void *(*change)(void *, size_t) = plain ? by_realloc : by_rallocx;
        CHECK(!moves(change, plain, 129, 130) || sampled);
        CHECK(moves(change, plain, 8, 128) || sampled);
        CHECK(moves(change, plain, 1, 2 << 20) || sampled);
        CHECK(moves(change, plain, 2 << 20, 100) || sampled);
        moves(change, plain, 1 << 20, 2 << 20);
        moves(change, plain, 2 << 20, 1 << 20);
        moves(change, plain, 5000, 100);
        moves(change, plain, 70000, 60000);
    }
}

static void expansions(void) {
    size_t sizes[][3] = {
        {1, 100, 200}, {100, 100, 0}, {1 << 20, 1 << 20, 1 << 20}, {1 << 20, 1 << 19, 0}};
    for (int i = 0; i < 4; i++) {
        void *volatile block = malloc(sizes[i][0]);
        size_t before = malloc_usable_size(block);
        told = 0;
        size_t now = xallocx(block, sizes[i][1], sizes[i][2], MALLOCX_TCACHE_NONE);
        struct call *call = only('e', EXPAND_XALLOCX);
        CHECK(call->block == block && call->raw == now && call->now == now);
        CHECK((call->before == before && now == malloc_usable_size(block)) || sampled);
        CHECK(call->args[0] == (uintptr_t)block && call->args[1] == sizes[i][1]);
        CHECK(call->args[2] == sizes[i][2] && call->args[3] == (uintptr_t)MALLOCX_TCACHE_NONE);
        free(block);
        told = 0;
    }
}

static void several(void) {
    /* A kind of request that a set says nothing of is not told to it. */
    void *handles[4];
    handles[0] = install((struct hooks){NULL, NULL, NULL, NULL});
    handles[1] = install((struct hooks){on_alloc, NULL, NULL, (void *)1});
    handles[2] = install((struct hooks){NULL, on_dalloc, NULL, (void *)2});
    handles[3] = install(all(3));
    void *none = (void *)77;
    CHECK(try_install(all(4), &none) == EAGAIN);
    void *volatile block = malloc(10);
    CHECK(told == 2 && calls[0].what == 'a' && calls[1].what == 'a');
    CHECK((uintptr_t)calls[0].extra + (uintptr_t)calls[1].extra == 1 + 3);
    told = 0;
    free(block);
    CHECK(told == 2 && calls[0].what == 'd' && calls[1].what == 'd');
    CHECK((uintptr_t)calls[0].extra + (uintptr_t)calls[1].extra == 2 + 3);
    told = 0;
    uninstall(handles[3]);
    block = malloc(10);
    CHECK(told == 1 && calls[0].extra == (void *)1);
    free(block);
    told = 0;
    /* The place is free again. */
    handles[3] = install(all(5));
    for (int i = 0; i < 4; i++) uninstall(handles[i]);
    block = malloc(10);
    free(block);
    CHECK(told == 0);
}

/* A thread that was there before, with blocks in its cache. */
static pthread_barrier_t step;
static void *kept[64];

static void *other(void *argument) {
    (void)argument;
    for (int turn = 0; turn < 20; turn++)
        for (int i = 0; i < 64; i++) {
            if (kept[i] != NULL) free(kept[i]);
            kept[i] = malloc(64);
        }
    for (int i = 0; i < 32; i++) free(kept[i]);
    CHECK(told == 0);
    pthread_barrier_wait(&step);
    pthread_barrier_wait(&step);
    /* Installed now. */
    for (int i = 32; i < 64; i++) {
        free(kept[i]);
        was_freed(DALLOC_FREE, kept[i]);
    }
    for (int i = 0; i < 64; i++) {
        kept[i] = malloc(64);
        was_allocated(ALLOC_MALLOC, kept[i], (uintptr_t)kept[i], 64, 0, 1);
    }
    pthread_barrier_wait(&step);
    pthread_barrier_wait(&step);
    /* Removed again. */
    for (int i = 0; i < 64; i++) free(kept[i]);
    void *volatile block = malloc(64);
    free(block);
    CHECK(told == 0);
    return NULL;
}

static void other_threads(void) {
    pthread_t thread;
    CHECK(pthread_barrier_init(&step, NULL, 2) == 0);
    CHECK(pthread_create(&thread, NULL, other, NULL) == 0);
    pthread_barrier_wait(&step);
    void *handle = install(all(123));
    pthread_barrier_wait(&step);
    pthread_barrier_wait(&step);
    uninstall(handle);
    pthread_barrier_wait(&step);
    CHECK(pthread_join(thread, NULL) == 0);
}

/* Removals and installations while others allocate: nothing is torn. */
static bool stop;

/* Told of since the count was last zero. */
static unsigned long seen;

static void on_one(void *extra, int type, void *result, uintptr_t raw, uintptr_t args[3]) {
    CHECK(extra == (void *)on_one && type == ALLOC_MALLOC);
    CHECK(raw == (uintptr_t)result && args[0] < 2000);
    __atomic_add_fetch(&seen, 1, __ATOMIC_RELAXED);
}

static void on_other(void *extra, int type, void *result, uintptr_t raw, uintptr_t args[3]) {
    CHECK(extra == (void *)on_other && type == ALLOC_MALLOC);
    CHECK(raw == (uintptr_t)result && args[0] < 2000);
}

static void *busy(void *argument) {
    (void)argument;
    void *blocks[50] = {NULL};
    for (size_t i = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); i++) {
        size_t place = i * 7919 % 50;
        free(blocks[place]);
        blocks[place] = malloc(i % 2000);
    }
    for (int i = 0; i < 50; i++) free(blocks[i]);
    return NULL;
}

static void while_others_allocate(void) {
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) CHECK(pthread_create(&threads[i], NULL, busy, NULL) == 0);
    for (int turn = 0; turn < 500; turn++) {
        void *handle = install((struct hooks){on_one, NULL, NULL, (void *)on_one});
        uninstall(handle);
        handle = install((struct hooks){on_other, NULL, NULL, (void *)on_other});
        if (turn % 16 == 0) usleep(100);
        uninstall(handle);
    }
    /* They see the last one without any word of ours, and end while it is there. */
    void *handle = install((struct hooks){on_one, NULL, NULL, (void *)on_one});
    __atomic_store_n(&seen, 0, __ATOMIC_RELAXED);
    while (__atomic_load_n(&seen, __ATOMIC_RELAXED) < 1000) usleep(100);
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    for (int i = 0; i < 3; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    uninstall(handle);
}

/* A child has its parent's hooks. */
static void fork_keeps_them(void) {
    void *handle = install(all(123));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        told = 0;
        void *volatile block = malloc(33);
        was_allocated(ALLOC_MALLOC, block, (uintptr_t)block, 33, 0, 1);
        free(block);
        was_freed(DALLOC_FREE, block);
        uninstall(handle);
        block = malloc(33);
        free(block);
        CHECK(told == 0);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    told = 0;
    uninstall(handle);
}

static void misuse(void) {
    struct hooks hooks = all(1);
    void *handle = NULL;
    size_t length = sizeof handle;
    const char *name = "experimental.hooks.install";
    CHECK(mallctl(name, NULL, NULL, &hooks, sizeof hooks) == EINVAL);
    CHECK(mallctl(name, &handle, NULL, &hooks, sizeof hooks) == EINVAL);
    CHECK(mallctl(name, &handle, &length, NULL, 0) == EINVAL);
    length = sizeof handle;
    CHECK(mallctl(name, &handle, &length, &hooks, sizeof hooks - 1) == EINVAL);
    name = "experimental.hooks.remove";
    length = sizeof handle;
    CHECK(mallctl(name, &handle, &length, &handle, sizeof handle) == EPERM);
    CHECK(mallctl(name, NULL, NULL, NULL, 0) == EINVAL);
    CHECK(mallctl(name, NULL, NULL, &handle, sizeof handle) == EINVAL);
    CHECK(mallctl(name, NULL, NULL, &handle, 3) == EINVAL);
    size_t mib[4], depth = 4;
    CHECK(mallctlnametomib("experimental.hooks.install", mib, &depth) == 0 && depth == 3);
    length = sizeof handle;
    CHECK(mallctlbymib(mib, depth, &handle, &length, &hooks, sizeof hooks) == 0 && handle != NULL);
    uninstall(handle);
    told = 0;
}

int main(void) {
    require_preload();
    sampled = GET(bool, "opt.prof");
    void *handle = install(all(123));
    for (int turn = 0; turn < 2; turn++) {
        allocates = turn == 1;
        allocations();
        realloc_as_malloc_and_free();
        reallocations();
        expansions();
    }
    allocates = false;
    uninstall(handle);
    several();
    other_threads();
    while_others_allocate();
    fork_keeps_them();
    misuse();
    return passed();
}
