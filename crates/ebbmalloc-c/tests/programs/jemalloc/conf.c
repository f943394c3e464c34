/* Settings compiled into the program: read before main, shown by opt.*, and in force. */
#include "control.h"

const char *malloc_conf =
    "narenas:3,dirty_decay_ms:1234,muzzy_decay_ms:-1,tcache:false,background_thread:false,"
    "lg_extent_max_active_fit:5,oversize_threshold:0,retain:true,stats_print_opts:J,dss:disabled";

int main(void) {
    require_preload();
    CHECK(GET(unsigned, "opt.narenas") == 3);
    CHECK(GET(ssize_t, "opt.dirty_decay_ms") == 1234);
    CHECK(GET(ssize_t, "opt.muzzy_decay_ms") == -1);
    CHECK(!GET(bool, "opt.tcache"));
    CHECK(!GET(bool, "opt.background_thread"));
    CHECK(GET(size_t, "opt.lg_extent_max_active_fit") == 5);
    CHECK(GET(size_t, "opt.oversize_threshold") == 0);
    CHECK(GET(bool, "opt.retain"));
    CHECK(strcmp(GET(const char *, "opt.stats_print_opts"), "J") == 0);
    CHECK(strcmp(GET(const char *, "opt.dss"), "disabled") == 0);
    /* In force. */
    CHECK(GET(ssize_t, "arenas.dirty_decay_ms") == 1234);
    CHECK(GET(ssize_t, "arena.0.dirty_decay_ms") == 1234);
    CHECK(GET(ssize_t, "arenas.muzzy_decay_ms") == -1);
    CHECK(GET(unsigned, "arenas.narenas") == 3);
    CHECK(!GET(bool, "thread.tcache.enabled"));
    CHECK(!GET(bool, "background_thread"));
    unsigned made = GET(unsigned, "arenas.create");
    CHECK(made == 3 && GET(ssize_t, named("arena.%u.dirty_decay_ms", made)) == 1234);
    return passed();
}
