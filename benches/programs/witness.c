/* witness.so: preloaded after the allocator under trial into a program of others, it
 * writes one line per process to the file that BENCH_WITNESS names: the program and the
 * object that answers its malloc. So a run counts only where the preload really happened,
 * in every process of it. Allocates nothing but in that
 * rare case below. */
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static size_t append(char *line, size_t length, size_t capacity, const char *text)
{
    size_t more = strlen(text);
    if (more > capacity - length)
        more = capacity - length;
    memcpy(line + length, text, more);
    return length + more;
}

/* A program that is not position-independent and takes malloc's address has a stub of its
 * own for it, which the loader then names although the calls go on to the first object
 * that defines malloc: that one is looked for in the loader's order. */
static const char *first_definition(void)
{
    struct link_map *map = NULL;
    if (dlinfo(dlopen(NULL, RTLD_LAZY | RTLD_NOLOAD), RTLD_DI_LINKMAP, &map) != 0)
        return "unknown";
    for (map = map->l_next; map; map = map->l_next) {
        void *handle = map->l_name[0] ? dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD) : NULL;
        void *symbol = handle ? dlsym(handle, "malloc") : NULL;
        Dl_info info;
        if (symbol && dladdr(symbol, &info) && (ElfW(Addr))info.dli_fbase == map->l_addr)
            return map->l_name;
    }
    return "unknown";
}

__attribute__((constructor)) static void testify(void)
{
    const char *path = getenv("BENCH_WITNESS");
    if (!path)
        return;
    char program[1024], line[4096];
    ssize_t named = readlink("/proc/self/exe", program, sizeof program - 1);
    program[named > 0 ? named : 0] = '\0';
    Dl_info info = {0};
    const ElfW(Sym) *entry = NULL;
    void *symbol = dlsym(RTLD_DEFAULT, "malloc");
    if (!symbol || !dladdr1(symbol, &info, (void **)&entry, RTLD_DL_SYMENT) || !info.dli_fname)
        info.dli_fname = "unknown";
    else if (entry && entry->st_shndx == SHN_UNDEF)
        info.dli_fname = first_definition();
    size_t length = append(line, 0, sizeof line, program);
    length = append(line, length, sizeof line, "\t");
    length = append(line, length, sizeof line, info.dli_fname);
    length = append(line, length, sizeof line, "\n");
    int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0)
        return;
    /* One write of an append-mode file is whole, also from several processes. */
    if (write(file, line, length) < 0)
        line[0] = '\0';
    close(file);
}
