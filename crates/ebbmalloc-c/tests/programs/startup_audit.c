/* An audit library (rtld-audit(7)) that hears of every object, symbol and call, and allocates each time: from the libc of
 * its own namespace. */
#define _GNU_SOURCE
#include <link.h>
#include <stdint.h>
#include <stdlib.h>

static void use_heap(void) {
    char *block = malloc(100);
    if (block == NULL) abort();
    block[99] = 1;
    free(block);
}

unsigned int la_version(unsigned int version) {
    use_heap();
    return version < LAV_CURRENT ? version : LAV_CURRENT;
}

char *la_objsearch(const char *name, uintptr_t *cookie, unsigned int flag) {
    (void)cookie, (void)flag;
    use_heap();
    return (char *)name;
}

unsigned int la_objopen(struct link_map *map, Lmid_t space, uintptr_t *cookie) {
    (void)map, (void)space, (void)cookie;
    use_heap();
    return LA_FLG_BINDTO | LA_FLG_BINDFROM;
}

void la_activity(uintptr_t *cookie, unsigned int flag) {
    (void)cookie, (void)flag;
    use_heap();
}

uintptr_t la_symbind64(Elf64_Sym *symbol, unsigned int index, uintptr_t *from, uintptr_t *to, unsigned int *flags,
                       const char *name) {
    (void)index, (void)from, (void)to, (void)flags, (void)name;
    use_heap();
    return symbol->st_value;
}

#ifdef __x86_64__
Elf64_Addr la_x86_64_gnu_pltenter(Elf64_Sym *symbol, unsigned int index, uintptr_t *from, uintptr_t *to,
                                  La_x86_64_regs *registers, unsigned int *flags, const char *name, long int *frame) {
    (void)index, (void)from, (void)to, (void)registers, (void)flags, (void)name, (void)frame;
    use_heap();
    return symbol->st_value;
}
#endif
