/* A process that is hostile to its readers: `target CASE [FILE]`. It says "ready" and waits. */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <linux/fuse.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <stdint.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096ul
#define CHECK(what) do { if (!(what)) { perror(#what); exit(3); } } while (0)

/* The header of ebbmalloc's counters, and its layout, with words that lie. */
_Alignas(64) uint64_t counters[64];
_Alignas(64) uint64_t layout[64];
/* By this name a program has ebbmalloc inside. */
int ebbmalloc_thread_word;
char *volatile kept[200000];

static void *map(size_t bytes) {
    void *at = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

/* Memory whose first touch waits for an answer that never comes. */
static char *silent(size_t bytes) {
    int fd = syscall(SYS_userfaultfd, O_CLOEXEC);
    CHECK(fd >= 0);
    struct uffdio_api api = {.api = UFFD_API};
    CHECK(!ioctl(fd, UFFDIO_API, &api));
    char *at = map(bytes);
    struct uffdio_register all = {.range = {(uintptr_t)at, bytes}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    CHECK(!ioctl(fd, UFFDIO_REGISTER, &all));
    return at;
}

/* The places that the kernel keeps, as they are. */
static struct prctl_mm_map places(void) {
    unsigned long long field[53] = {0};
    char text[4096], *at;
    int fd = open("/proc/self/stat", O_RDONLY);
    ssize_t bytes = read(fd, text, sizeof text - 1);
    CHECK(bytes > 0);
    text[bytes] = 0;
    at = strrchr(text, ')') + 4;
    for (int i = 4; i < 53; i++) field[i] = strtoull(at, &at, 10);
    return (struct prctl_mm_map){
        .start_code = field[26], .end_code = field[27], .start_stack = field[28], .start_data = field[45],
        .end_data = field[46], .start_brk = field[47], .brk = (uintptr_t)sbrk(0), .arg_start = field[48],
        .arg_end = field[49], .env_start = field[50], .env_end = field[51], .exe_fd = -1};
}

static void put(struct prctl_mm_map now) {
    CHECK(!prctl(PR_SET_MM, PR_SET_MM_MAP, &now, sizeof now, 0));
}

/* The words of a process's arguments, moved to other memory. */
static void move_arguments(char *from, size_t bytes) {
    struct prctl_mm_map now = places();
    now.arg_start = now.env_start = (uintptr_t)from;
    now.arg_end = now.env_end = (uintptr_t)from + bytes;
    put(now);
}

static struct link_map *first_library(void) {
    struct link_map *it = _r_debug.r_map;
    while (it->l_next && !strstr(it->l_name, "libc.so")) it = it->l_next;
    return it;
}

static void lie(uint64_t word) {
    for (int i = 0; i < 64; i++) counters[i] = word;
    memcpy(counters, "ebbstat", 8);
    ((uint32_t *)counters)[2] = 2;
    ((uint32_t *)counters)[3] = 50;
    memcpy(layout, "ebbheap", 8);
    layout[1] = 3;
    for (int i = 2; i < 64; i++) layout[i] = word;
}

/* The program headers as the kernel tells of them. */
static void set_headers(uint64_t at, uint64_t size, uint64_t count) {
    static Elf64_auxv_t copy[64];
    int fd = open("/proc/self/auxv", O_RDONLY);
    ssize_t bytes = read(fd, copy, sizeof copy);
    CHECK(bytes > 0);
    for (Elf64_auxv_t *it = copy; it->a_type; it++) {
        if (it->a_type == AT_PHDR && at) it->a_un.a_val = at;
        if (it->a_type == AT_PHENT) it->a_un.a_val = size;
        if (it->a_type == AT_PHNUM) it->a_un.a_val = count;
    }
    struct prctl_mm_map now = places();
    now.auxv = (void *)copy;
    now.auxv_size = bytes;
    put(now);
}

static void set_debug(uint64_t value) {
    for (ElfW(Dyn) *it = _DYNAMIC; it->d_tag; it++)
        if (it->d_tag == DT_DEBUG) {
            char *page = (char *)((uintptr_t)it & -PAGE);
            CHECK(!mprotect(page, 2 * PAGE, PROT_READ | PROT_WRITE));
            it->d_un.d_val = value;
        }
}

/* A file system with one file, the libc, until a signal: then no request is answered. */
static volatile sig_atomic_t is_silent;
static void be_silent(int number) { (void)number; is_silent = 1; }

static void serve(int fuse, int libc, off_t bytes) {
    static char in[1 << 17], out[1 << 17];
    struct fuse_in_header *ask = (void *)in;
    struct fuse_out_header *head = (void *)out;
    void *body = out + sizeof *head;
    while (read(fuse, in, sizeof in) > 0) {
        while (is_silent) pause();
        struct fuse_attr attr = {.ino = ask->nodeid, .mode = S_IFDIR | 0755, .nlink = 1, .blksize = 4096};
        if (ask->opcode == FUSE_LOOKUP) attr.ino = 2;
        if (attr.ino == 2) attr.mode = S_IFREG | 0755, attr.size = bytes, attr.blocks = bytes / 512;
        int len = 0, error = 0;
        if (ask->opcode == FUSE_INIT) {
            *(struct fuse_init_out *)body = (struct fuse_init_out){.major = 7, .minor = 31, .max_write = 4096};
            len = sizeof(struct fuse_init_out);
        } else if (ask->opcode == FUSE_LOOKUP) {
            *(struct fuse_entry_out *)body = (struct fuse_entry_out){.nodeid = 2, .attr = attr};
            len = sizeof(struct fuse_entry_out);
        } else if (ask->opcode == FUSE_GETATTR) {
            *(struct fuse_attr_out *)body = (struct fuse_attr_out){.attr = attr};
            len = sizeof(struct fuse_attr_out);
        } else if (ask->opcode == FUSE_OPEN) {
            *(struct fuse_open_out *)body = (struct fuse_open_out){0};
            len = sizeof(struct fuse_open_out);
        } else if (ask->opcode == FUSE_READ) {
            struct fuse_read_in *wanted = (void *)(ask + 1);
            len = pread(libc, body, wanted->size, wanted->offset);
        } else if (ask->opcode == FUSE_FORGET || ask->opcode == FUSE_BATCH_FORGET) {
            continue;
        } else {
            error = -ENOSYS;
        }
        *head = (struct fuse_out_header){sizeof *head + len, error, ask->unique};
        if (write(fuse, out, head->len) < 0 && errno != ENOENT) perror("answer");
    }
}

/* Loads a library from files that answer no more afterwards. Unmounted with the last process of the namespace. */
static void load_silent(const char *folder) {
    char options[100], name[4096];
    int libc = open(first_library()->l_name, O_RDONLY), fuse = open("/dev/fuse", O_RDWR);
    CHECK(libc >= 0 && fuse >= 0 && !unshare(CLONE_NEWNS) && !mount("none", "/", 0, MS_REC | MS_PRIVATE, 0));
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fuse);
    CHECK(!mount("silent", folder, "fuse.silent", 0, options));
    struct stat at;
    CHECK(!fstat(libc, &at));
    pid_t server = fork();
    if (!server) {
        signal(SIGUSR1, be_silent);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        serve(fuse, libc, at.st_size);
        exit(0);
    }
    close(fuse);
    snprintf(name, sizeof name, "%s/libc-copy.so", folder);
    int file = open(name, O_RDONLY);
    char *code = mmap(0, at.st_size, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
    CHECK(file >= 0 && code != MAP_FAILED && code[0]);
    /* While it is answered: an open file would keep this process from its end. */
    close(file);
    first_library()->l_name = strdup(name);
    kill(server, SIGUSR1);
}

int main(int argc, char **argv) {
    const char *is = argv[1], *file = argc > 2 ? argv[2] : "";
    /* Some heap that is held. */
    for (int i = 0; i < 200000; i++) kept[i] = malloc(100);
    for (int i = 0; i < 199000; i++) free(kept[i]);
    if (!strcmp(is, "escapes")) {
        prctl(PR_SET_NAME, "\033]0;own\007\r\n\033[2J");
    } else if (!strcmp(is, "object-is")) {
        first_library()->l_name = strdup(file);
    } else if (!strcmp(is, "objects-in-a-circle")) {
        first_library()->l_next = _r_debug.r_map->l_next;
    } else if (!strcmp(is, "objects-with-long-names")) {
        char *name = map(128 << 10);
        memset(name, 'x', (128 << 10) - 1);
        struct link_map *it = first_library();
        for (int i = 0; i < 5000; i++) {
            struct link_map *next = calloc(1, sizeof *next);
            next->l_name = name;
            it = it->l_next = next;
        }
    } else if (!strcmp(is, "name-that-waits")) {
        first_library()->l_name = silent(PAGE);
    } else if (!strcmp(is, "arguments-that-wait")) {
        move_arguments(silent(PAGE), PAGE);
    } else if (!strcmp(is, "arguments-without-end")) {
        size_t bytes = 1ul << 40;
        move_arguments(map(bytes), bytes);
    } else if (!strcmp(is, "headers-without-size")) {
        set_headers(0, 0, UINT64_MAX);
    } else if (!strcmp(is, "headers-at-the-end")) {
        set_headers(UINT64_MAX - 7, UINT64_MAX / 2, 5);
    } else if (!strcmp(is, "debug-at-the-end")) {
        set_debug(UINT64_MAX - 16);
    } else if (!strcmp(is, "counters-of-ones")) {
        lie(UINT64_MAX);
    } else if (!strcmp(is, "counters-that-point-at-themselves")) {
        lie((uintptr_t)layout);
    } else if (!strcmp(is, "counters-small")) {
        lie(1);
    } else if (!strcmp(is, "many-mappings")) {
        long count = atol(file);
        char *at = map(2 * count * PAGE);
        for (long i = 0; i < count; i++) {
            at[2 * i * PAGE] = 1;
            if (mprotect(at + 2 * i * PAGE, PAGE, PROT_READ)) break;
        }
    } else if (!strcmp(is, "another-user-namespace")) {
        CHECK(!unshare(CLONE_NEWUSER));
    } else if (!strcmp(is, "a-root-with-links")) {
        /* Its own mount namespace and root, where the library is a link to the host's file. */
        CHECK(!unshare(CLONE_NEWNS));
        CHECK(!chroot(file));
        CHECK(!chdir("/"));
        first_library()->l_name = strdup("/outside");
    } else if (!strcmp(is, "files-that-wait")) {
        load_silent(file);
    }
    char *big = map(64 << 20);
    memset(big, 1, 64 << 20);
    puts("ready");
    fflush(stdout);
    for (;;) pause();
}
