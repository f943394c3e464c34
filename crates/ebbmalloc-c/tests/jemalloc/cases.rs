//! The programs, each on both libraries: its name, its source, its settings.

use crate::either::Library;
use crate::harness::Scratch;

fn passes(library: Library, program: &str, settings: &str) {
    let folder = Scratch::new();
    library.run(program, settings, &folder).run().passed();
}

macro_rules! cases {
    ($($name:ident: $program:literal, $settings:literal;)*) => {
        $(mod $name {
            use super::*;

            #[test]
            fn on_jemalloc() {
                passes(Library::Jemalloc, $program, $settings);
            }

            #[test]
            fn on_ebbmalloc() {
                passes(Library::Ebbmalloc, $program, $settings);
            }
        })*
    };
}

cases! {
    aligned_alloc: "aligned_alloc", "";
    allocated: "allocated", "";
    arenas: "arenas", "";
    background: "background", "";
    batch: "batch", "";
    caches: "caches", "";
    conf: "conf", "";
    decay: "decay", "";
    defragment: "defragment", "";
    default_hooks: "default_hooks", "";
    epoch: "epoch", "";
    errors: "errors", "";
    hooks: "hooks", "";
    hooks_borders: "hooks_borders", "";
    hooks_allocate: "hooks_allocate", "";
    json: "json", "";
    mallocx: "mallocx", "";
    many_arenas: "many_arenas", "";
    message: "message", "";
    mib: "mib", "";
    options: "options", "";
    overflow: "overflow", "";
    posix_memalign: "posix_memalign", "";
    purge: "purge", "";
    rallocx: "rallocx", "";
    reset: "reset", "";
    sallocx: "sallocx", "";
    sizes: "sizes", "";
    standard: "standard", "";
    stats: "stats", "";
    utilization: "utilization", "";
    xallocx: "xallocx", "";
    environment: "environment", "dirty_decay_ms:777,narenas:2";
    fill_junk: "fill", "junk:true";
    fill_junk_alloc: "fill", "junk:alloc";
    fill_junk_free: "fill", "junk:free";
    fill_zero: "fill", "zero:true";
    prof_hooks: "prof_hooks", "prof:true,lg_prof_sample:0,prof_prefix:heap";
    prof: "prof", "prof:true,prof_active:false,lg_prof_sample:12,prof_prefix:heap";
    zero_realloc_frees: "zero_realloc", "zero_realloc:free";
    zero_realloc_allocates: "zero_realloc", "zero_realloc:alloc";
    deployed_sse: "deployed", "background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:1000";
    deployed_device: "deployed", "narenas:1,tcache:false,dirty_decay_ms:10000,muzzy_decay_ms:10000,background_thread:true";
    deployed_rails: "deployed", "dirty_decay_ms:1000,narenas:2,background_thread:true";
    deployed_clickhouse: "deployed", "percpu_arena:percpu,oversize_threshold:0,muzzy_decay_ms:0,dirty_decay_ms:5000,prof:true,prof_active:true,prof_thread_active_init:false,background_thread:true,lg_extent_max_active_fit:8";
    deployed_doris: "deployed", "percpu_arena:percpu,background_thread:true,metadata_thp:auto,dirty_decay_ms:30000,muzzy_decay_ms:30000,oversize_threshold:0,lg_tcache_max:16";
}
