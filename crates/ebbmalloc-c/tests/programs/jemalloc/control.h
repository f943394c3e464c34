/* What every program of the jemalloc suite starts with. The programs are linked to libjemalloc.so.2 and know nothing
 * else of the allocator: the same executable runs on jemalloc and on ebbmalloc under jemalloc's name. Only what
 * jemalloc's manual promises is checked. */
#include "../check.h"
#include <inttypes.h>
#include <jemalloc/jemalloc.h>
#include "../control.h"

/* Settings of a program's own. */
#ifdef COMPILED_SETTINGS
const char *malloc_conf = COMPILED_SETTINGS;
#endif
