/* A library that is loaded with RTLD_DEEPBIND: blocks pass between it, the program and libc, and it loads another one
 * that only its own RUNPATH finds. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

void drop(void *block) { free(block); }

char *give(void) { return malloc(100); }

void libc_gives_and_we_drop(void) { free(strdup("from libc")); }

void *open_beside(const char *name) { return dlopen(name, RTLD_NOW | RTLD_DEEPBIND); }
