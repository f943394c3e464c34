//! Settings that people deploy: the variants that `ebb compare` knows by name, and what `--tune` tries. Few, each seen in public.
//!
//! The first of each allocator is none.

use super::allocator::Allocator;

/// A named set of variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Its name in the table.
    pub name: &'static str,
    /// What it sets.
    pub env: &'static [(&'static str, &'static str)],
}

const fn none(allocator: Allocator) -> Tuning {
    Tuning { name: allocator.name(), env: &[] }
}

const GLIBC: &[Tuning] = &[
    none(Allocator::Glibc),
    Tuning { name: "glibc-arena-2", env: &[("MALLOC_ARENA_MAX", "2")] },
    Tuning { name: "glibc-arena-1", env: &[("MALLOC_ARENA_MAX", "1")] },
    Tuning { name: "glibc-trim-64k", env: &[("MALLOC_TRIM_THRESHOLD_", "65536")] },
    Tuning { name: "glibc-trim-4m", env: &[("MALLOC_TRIM_THRESHOLD_", "4194304")] },
    Tuning { name: "glibc-trim-64k-arena-2", env: &[("MALLOC_ARENA_MAX", "2"), ("MALLOC_TRIM_THRESHOLD_", "65536")] },
    Tuning {
        name: "glibc-mmap-64k",
        env: &[("MALLOC_MMAP_THRESHOLD_", "65536"), ("MALLOC_TRIM_THRESHOLD_", "131072")],
    },
];

const JEMALLOC: &[Tuning] = &[
    none(Allocator::Jemalloc),
    Tuning {
        name: "jemalloc-1000",
        env: &[("MALLOC_CONF", "background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:1000")],
    },
    Tuning {
        name: "jemalloc-5000",
        env: &[("MALLOC_CONF", "background_thread:true,dirty_decay_ms:5000,muzzy_decay_ms:5000")],
    },
    Tuning {
        name: "jemalloc-10000",
        env: &[("MALLOC_CONF", "background_thread:true,dirty_decay_ms:10000,muzzy_decay_ms:10000")],
    },
    Tuning { name: "jemalloc-arena-1", env: &[("MALLOC_CONF", "narenas:1")] },
    Tuning { name: "jemalloc-no-tcache", env: &[("MALLOC_CONF", "tcache:false")] },
    Tuning { name: "jemalloc-decay0", env: &[("MALLOC_CONF", "dirty_decay_ms:0,muzzy_decay_ms:0")] },
    // Gunicorn with a dozen workers.
    Tuning {
        name: "jemalloc-gunicorn",
        env: &[(
            "MALLOC_CONF",
            "narenas:1,tcache:false,dirty_decay_ms:10000,muzzy_decay_ms:10000,background_thread:true",
        )],
    },
    // The Dockerfile that Rails generates.
    Tuning { name: "jemalloc-rails", env: &[("MALLOC_CONF", "dirty_decay_ms:1000,narenas:2,background_thread:true")] },
    // ClickHouse, without its profiling.
    Tuning {
        name: "jemalloc-clickhouse",
        env: &[(
            "MALLOC_CONF",
            "percpu_arena:percpu,oversize_threshold:0,muzzy_decay_ms:0,dirty_decay_ms:5000,background_thread:true,lg_extent_max_active_fit:8",
        )],
    },
    // Doris.
    Tuning {
        name: "jemalloc-doris",
        env: &[(
            "MALLOC_CONF",
            "percpu_arena:percpu,background_thread:true,metadata_thp:auto,dirty_decay_ms:30000,muzzy_decay_ms:30000,oversize_threshold:0,lg_tcache_max:16",
        )],
    },
];

const MIMALLOC: &[Tuning] = &[
    none(Allocator::Mimalloc),
    Tuning { name: "mimalloc-purge0", env: &[("MIMALLOC_PURGE_DELAY", "0"), ("MIMALLOC_RESET_DELAY", "0")] },
    Tuning { name: "mimalloc-decommit", env: &[("MIMALLOC_PAGE_RESET", "1"), ("MIMALLOC_RESET_DECOMMITS", "1")] },
];

const TCMALLOC: &[Tuning] = &[
    none(Allocator::Tcmalloc),
    Tuning { name: "tcmalloc-release10", env: &[("TCMALLOC_RELEASE_RATE", "10")] },
    Tuning { name: "tcmalloc-decommit", env: &[("TCMALLOC_AGGRESSIVE_DECOMMIT", "1")] },
];

const EBBMALLOC: &[Tuning] = &[
    none(Allocator::Ebbmalloc),
    Tuning { name: "ebbmalloc-decay250", env: &[("EBB_CONF", "dirty_decay_ms:250")] },
    Tuning { name: "ebbmalloc-narenas1", env: &[("EBB_CONF", "narenas:1")] },
];

/// The variable that moves CPython's small objects from arenas of its own to malloc.
pub const CPYTHON_TO_MALLOC: (&str, &str) = ("PYTHONMALLOC", "malloc");

/// The settings of an allocator; nothing for a name that is not known.
pub fn tunings(allocator: &str) -> Option<&'static [Tuning]> {
    match Allocator::from_choice(allocator)? {
        Allocator::Glibc => Some(GLIBC),
        Allocator::Jemalloc => Some(JEMALLOC),
        Allocator::Mimalloc => Some(MIMALLOC),
        Allocator::Tcmalloc => Some(TCMALLOC),
        Allocator::Ebbmalloc => Some(EBBMALLOC),
        Allocator::Musl => None,
    }
}

/// The variants of a trial that chooses none.
pub const USUAL: [&str; 9] = [
    Allocator::Glibc.name(),
    "glibc-arena-2",
    "glibc-trim-64k",
    Allocator::Jemalloc.name(),
    "jemalloc-1000",
    "jemalloc-5000",
    Allocator::Mimalloc.name(),
    Allocator::Tcmalloc.name(),
    Allocator::Ebbmalloc.name(),
];

/// The allocator and its settings under this name. Hyphens do not count: older trials call it `glibc-arena2`.
pub fn tuning(name: &str) -> Option<(Allocator, &'static Tuning)> {
    let plain = |name: &str| name.replace('-', "");
    let wanted = plain(name);
    all_tunings().find(|(_, tuning)| plain(tuning.name) == wanted)
}

/// Every allocator's settings, those of the C library first.
pub fn all_tunings() -> impl Iterator<Item = (Allocator, &'static Tuning)> {
    let of = |it: Allocator| tunings(it.name()).into_iter().flatten().map(move |tuning| (it, tuning));
    Allocator::CHOICES.into_iter().rev().flat_map(of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_known_allocator_has_settings_and_the_first_are_none() {
        for allocator in Allocator::CHOICES {
            let tunings = tunings(allocator.name()).unwrap();
            assert!(tunings[0].env.is_empty() && tunings[0].name == allocator.name());
            let names: BTreeSet<_> = tunings.iter().map(|tuning| tuning.name).collect();
            assert_eq!(names.len(), tunings.len());
            let settings: BTreeSet<_> = tunings.iter().map(|tuning| tuning.env).collect();
            assert_eq!(settings.len(), tunings.len(), "{allocator}: the same twice");
        }
        assert_eq!(tunings("hoard"), None);
    }

    #[test]
    fn a_name_is_one_setting_and_old_spellings_are_known() {
        for (allocator, known) in all_tunings() {
            assert_eq!(tuning(known.name), Some((allocator, known)));
        }
        let env = |name: &str| tuning(name).map(|(_, tuning)| tuning.env[0]);
        assert_eq!(env("glibc-arena2"), Some(("MALLOC_ARENA_MAX", "2")));
        assert_eq!(env("glibc-trim64k"), Some(("MALLOC_TRIM_THRESHOLD_", "65536")));
        assert_eq!(tuning("glibc-arena"), None);
        assert!(USUAL.iter().all(|name| tuning(name).is_some_and(|(_, it)| it.name == *name)));
    }
}
