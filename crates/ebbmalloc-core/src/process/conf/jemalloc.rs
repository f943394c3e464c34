//! The keys of jemalloc 5 that mean nothing here, so that its settings are no mistakes.

/// From jemalloc's manual page, section "TUNING" and "MALLCTL NAMESPACE" (`opt.*`), 5.0 to 5.3.
const KEYS: [&[u8]; 47] = [
    b"abort",
    b"abort_conf",
    b"bin_shards",
    b"cache_oblivious",
    b"debug_double_free_max_scan",
    b"decay_time",
    b"dss",
    b"hpa",
    b"hpa_dirty_mult",
    b"hpa_hugification_threshold",
    b"hpa_hugify_delay_ms",
    b"hpa_min_purge_interval_ms",
    b"hpa_sec_bytes_after_flush",
    b"hpa_sec_batch_fill_extra",
    b"hpa_sec_max_alloc",
    b"hpa_sec_max_bytes",
    b"hpa_sec_nshards",
    b"hpa_slab_max_alloc",
    b"junk",
    b"lg_chunk",
    b"lg_dirty_mult",
    b"lg_extent_max_active_fit",
    b"lg_san_uaf_align",
    b"lg_tcache_flush_large_div",
    b"lg_tcache_flush_small_div",
    b"lg_tcache_max",
    b"lg_tcache_nslots_mul",
    b"max_background_threads",
    b"metadata_thp",
    b"mutex_max_spin",
    b"oversize_threshold",
    b"percpu_arena",
    b"purge",
    b"retain",
    b"san_guard_large",
    b"san_guard_small",
    b"slab_sizes",
    b"stats_interval",
    b"stats_interval_opts",
    b"stats_print_opts",
    b"tcache",
    b"tcache_max",
    b"thp",
    b"trust_madvise",
    b"utrace",
    b"xmalloc",
    b"zero",
];

/// Families of keys: profiling, the thread cache's sizes, experiments.
const PREFIXES: [&[u8]; 6] = [
    b"prof",
    b"lg_prof_",
    b"experimental_",
    b"tcache_",
    b"zero_realloc",
    b"test_",
];

/// Whether jemalloc has a setting of this name.
pub fn knows(key: &[u8]) -> bool {
    KEYS.contains(&key) || PREFIXES.iter().any(|prefix| key.starts_with(prefix))
}
