/* Every option that programs and dashboards read, with its type; run without settings. */
#include "control.h"

int main(void) {
    require_preload();
    static const char *const flags[] = {
        "opt.abort",       "opt.abort_conf",    "opt.confirm_conf", "opt.background_thread",
        "opt.tcache",      "opt.retain",        "opt.zero",         "opt.prof",
        "opt.prof_active", "opt.prof_accum",    "opt.prof_gdump",   "opt.prof_final",
        "opt.prof_leak",   "opt.stats_print",   "opt.hpa",          "opt.cache_oblivious",
        "opt.trust_madvise", "opt.prof_thread_active_init", "opt.prof_leak_error",
        "opt.experimental_infallible_new",
        "config.cache_oblivious", "config.debug", "config.fill", "config.lazy_lock",
        "config.opt_safety_checks", "config.prof", "config.prof_libgcc", "config.prof_libunwind",
        "config.stats", "config.utrace", "config.xmalloc"};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        unsigned char flag = 7;
        size_t length = sizeof flag;
        int error = mallctl(flags[i], &flag, &length, NULL, 0);
        if (error != 0 || length != 1 || flag > 1)
            node_failed(__FILE__, __LINE__, flags[i], error, length);
    }
    static const char *const texts[] = {"version",  "opt.dss",         "opt.percpu_arena", "opt.thp",
                                        "opt.junk", "opt.metadata_thp", "opt.prof_prefix",
                                        "opt.stats_print_opts", "opt.stats_interval_opts",
                                        "opt.zero_realloc", "config.malloc_conf"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const char *text = GET(const char *, texts[i]);
        CHECK(text != NULL && strlen(text) < 500);
    }
    static const char *const sizes[] = {"opt.oversize_threshold", "opt.lg_extent_max_active_fit",
                                        "opt.tcache_max", "opt.max_background_threads",
                                        "opt.lg_prof_sample", "opt.tcache_gc_incr_bytes",
                                        "opt.tcache_gc_delay_bytes", "arenas.quantum",
                                        "arenas.page", "arenas.tcache_max"};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) (void)GET(size_t, sizes[i]);
    static const char *const numbers[] = {"opt.narenas", "opt.tcache_nslots_small_min",
                                          "opt.tcache_nslots_small_max", "opt.tcache_nslots_large",
                                          "opt.lg_tcache_flush_small_div",
                                          "opt.lg_tcache_flush_large_div", "arenas.nbins",
                                          "arenas.nhbins", "arenas.narenas", "arenas.nlextents"};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) (void)GET(unsigned, numbers[i]);
    static const char *const signed_sizes[] = {"opt.dirty_decay_ms", "opt.muzzy_decay_ms",
                                               "opt.lg_tcache_nslots_mul", "opt.lg_prof_interval",
                                               "arenas.dirty_decay_ms", "arenas.muzzy_decay_ms"};
    for (size_t i = 0; i < sizeof signed_sizes / sizeof *signed_sizes; i++)
        CHECK(GET(ssize_t, signed_sizes[i]) >= -1);
    CHECK(GET(int64_t, "opt.stats_interval") == -1);
    CHECK(GET(int64_t, "opt.mutex_max_spin") >= 0);

    /* The defaults that programs rely on. */
    CHECK(!GET(bool, "opt.abort_conf") && !GET(bool, "opt.stats_print") && !GET(bool, "opt.zero"));
    CHECK(GET(bool, "opt.tcache") && !GET(bool, "opt.prof"));
    CHECK(strcmp(GET(const char *, "opt.junk"), "false") == 0);
    CHECK(strcmp(GET(const char *, "opt.zero_realloc"), "free") == 0);
    CHECK(strcmp(GET(const char *, "opt.prof_prefix"), "jeprof") == 0);
    CHECK(GET(bool, "config.stats") && GET(bool, "config.fill") && GET(bool, "config.prof"));
    CHECK(GET(size_t, "arenas.page") == (size_t)sysconf(_SC_PAGESIZE));
    CHECK(GET(size_t, "arenas.quantum") == 16);
    int major = 0;
    CHECK(sscanf(GET(const char *, "version"), "%d.", &major) == 1 && major == 5);
    return passed();
}
