//! The settings that are in force, each by the name that `MALLOC_CONF` and `EBB_CONF` know it by.

key! {
    /// Whether a warning ends the process.
    abort: "opt.abort", bool, ReadOnly;
    /// Whether memory comes from the program break.
    dss: "opt.dss", &'static str, ReadOnly;
    /// Arenas that there are without anybody's asking.
    narenas: "opt.narenas", u32, ReadOnly;
    /// What new and freed blocks are filled with.
    junk: "opt.junk", &'static str, ReadOnly;
    /// Whether new blocks are filled with zeros.
    zero: "opt.zero", bool, ReadOnly;
    /// Whether threads have caches.
    tcache: "opt.tcache", bool, ReadOnly;
    /// The largest block that caches take.
    tcache_max: "opt.tcache_max", usize, ReadOnly;
    /// Whether a thread of the allocator was asked for.
    background_thread: "opt.background_thread", bool, ReadOnly;
    /// How long memory may stay idle, in milliseconds; -1 for ever.
    dirty_decay_ms: "opt.dirty_decay_ms", isize, ReadOnly;
    /// The same for pages that the kernel may take; ebbmalloc has none.
    muzzy_decay_ms: "opt.muzzy_decay_ms", isize, ReadOnly;
}
