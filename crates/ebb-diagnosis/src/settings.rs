//! What an allocator's own settings can do about a cause, given the settings in force.
//!
//! One function an allocator; each says nothing where no setting of its own helps. Used by `findings`, which has
//! a sentence for every cause without it.

use ebb_allocators::Allocator;

use super::ledger::heaps;
use crate::facts::diagnosis::Cause;
use ebb_process::heap::NO_HUGE_PAGES;
use ebb_process::snapshot::{Heap, Pool, Process, Snapshot};

/// The remedy for `cause` by a setting, of the process that has the most of it.
pub fn remedy(cause: Cause, snapshot: &Snapshot) -> Option<String> {
    if cause == Cause::FreeObjects {
        return cpython_on_ebbmalloc(snapshot);
    }
    let worst = worst(cause, snapshot)?;
    let part = part(cause, &worst.reader);
    if let Some(pool) = pool(cause, part) {
        return Some(pool.remedy().to_owned());
    }
    match allocator(part)? {
        Allocator::Jemalloc => jemalloc(cause, worst),
        Allocator::Mimalloc => mimalloc(cause, worst),
        Allocator::Tcmalloc => tcmalloc(cause, worst),
        Allocator::Musl => musl(cause),
        Allocator::Glibc => glibc(cause, worst),
        Allocator::Ebbmalloc => None,
    }
}

/// The allocator in question among the heaps that were read together. glibc keeps no free pages in this sense.
fn part(cause: Cause, reader: &str) -> &str {
    let is_glibc = |part: &str| allocator(part) == Some(Allocator::Glibc);
    let has_free_pages = matches!(cause, Cause::Kept | Cause::Lazy);
    let mut parts = reader.split(" and ");
    parts.find(|part| !has_free_pages || !is_glibc(part)).unwrap_or_default()
}

fn allocator(part: &str) -> Option<Allocator> {
    Allocator::from_name(part.split([' ', ',']).next().unwrap_or_default())
}

/// The library's pool that the allocator in question is, where calls of that library return its free pages.
fn pool(cause: Cause, part: &str) -> Option<Pool> {
    let is_arrows = part.contains(" in libarrow.so");
    (is_arrows && matches!(cause, Cause::Kept | Cause::Lazy)).then_some(Pool::Arrow)
}

/// Whether the most of `cause` lies in a pool that another `malloc` does not replace.
pub fn is_of_pool(cause: Cause, snapshot: &Snapshot) -> bool {
    worst(cause, snapshot).is_some_and(|heap| pool(cause, part(cause, &heap.reader)).is_some())
}

/// Whether the most of `cause` may be due to huge pages that glibc's malloc asks for.
pub fn asks_for_huge_pages(cause: Cause, snapshot: &Snapshot) -> bool {
    worst(cause, snapshot).is_some_and(|heap| glibc(cause, heap).is_some())
}

/// The heap that has the most of `cause`.
fn worst(cause: Cause, snapshot: &Snapshot) -> Option<&Heap> {
    let worst = heaps(&snapshot.processes).max_by_key(|heap| cause.of_heap(heap));
    worst.filter(|heap| cause.of_heap(heap) > 0)
}

/// Where CPython has arenas although it runs on ebbmalloc, which would serve its objects.
fn cpython_on_ebbmalloc(snapshot: &Snapshot) -> Option<String> {
    let free = |process: &Process| process.objects.as_ref().map_or(0, |it| it.resident - it.live);
    let worst = snapshot.processes.iter().max_by_key(|it| free(it))?;
    let heap = worst.heap.as_ref()?;
    heap.reader.starts_with(Allocator::Ebbmalloc.name()).then(|| {
        "start the program without python:off in EBB_CONF, PYTHONMALLOC and -X dev: ebbmalloc then allocates \
         CPython's objects itself"
            .to_owned()
    })
}

fn jemalloc(cause: Cause, heap: &Heap) -> Option<String> {
    let setting = |name: &str| heap.settings.get(name).map(String::as_str);
    let variable = heap.settings_variable.as_deref().unwrap_or("MALLOC_CONF");
    let decay = setting("dirty_decay_ms");
    let thread = setting("background_thread");
    match cause {
        Cause::Kept if decay == Some("-1") => Some(format!(
            "dirty_decay_ms is -1, so free pages are never returned: {variable}=background_thread:true,dirty_decay_ms:1000"
        )),
        Cause::Kept if thread == Some("false") && setting("background_thread_asked") == Some("true") => Some(
            "background_thread is set but no such thread runs, as after a fork: the child has to turn it on again \
             (mallctl \"background_thread\"), or nothing purges while it is idle"
                .to_owned(),
        ),
        Cause::Kept if thread == Some("false") => {
            // A library without symbols does not say what was asked for.
            let forked = match setting("background_thread_asked") {
                None => "; a forked process loses that thread and has to turn it on again (mallctl \"background_thread\")",
                Some(_) => "",
            };
            Some(format!(
                "dirty pages are not purged while the program makes no requests: \
                 {variable}=background_thread:true,dirty_decay_ms:1000{forked}"
            ))
        }
        Cause::Kept => decay.map(|decay| {
            format!(
                "dirty pages are returned within about {decay} ms after their last use: {variable}=dirty_decay_ms:1000 shortens that"
            )
        }),
        Cause::Lazy => Some(format!(
            "muzzy pages stay resident until the kernel is short of memory: {variable}=muzzy_decay_ms:0 returns them at once"
        )),
        Cause::Cached => Some(format!(
            "nothing empties the cache of an idle thread: {variable}=tcache_max:4096,background_thread:true,dirty_decay_ms:1000 \
             keeps large blocks out of it and returns their pages; fewer threads help"
        )),
        Cause::Pinned => Some(
            "a slab stays while one of its regions is live, and no setting of jemalloc changes that much: ebb \
             compare shows whether another allocator packs closer"
                .to_owned(),
        ),
        _ => None,
    }
}

fn mimalloc(cause: Cause, heap: &Heap) -> Option<String> {
    let setting = |name: &str| heap.settings.get(name).map(String::as_str);
    // 2.0 has no purge_delay, and its mi_collect(true) returns next to nothing of what threads hold.
    let text = match (cause, setting("purge_delay"), setting("decommit_delay")) {
        (Cause::Kept, Some("-1"), _) => "purge_delay is -1, so free pages are never returned: MIMALLOC_PURGE_DELAY=0",
        (Cause::Kept, None, Some(_)) => {
            "mimalloc 2.0 returns pages only while their thread allocates or frees: MIMALLOC_DECOMMIT_DELAY=0 returns \
             them with the free; mi_collect(true) does not help"
        }
        (Cause::Kept, ..) => {
            "mimalloc purges in threads that allocate or free, so idle threads keep their pages: \
             mi_collect(true) in each thread returns them, MIMALLOC_PURGE_DELAY=0 returns them with the free"
        }
        _ => return None,
    };
    Some(text.to_owned())
}

fn tcmalloc(cause: Cause, heap: &Heap) -> Option<String> {
    let rate = heap.settings.get("tcmalloc_release_rate").map(String::as_str);
    let text = match (cause, rate) {
        (Cause::Kept, Some("0")) => {
            "tcmalloc_release_rate is 0, so free spans are never returned: TCMALLOC_AGGRESSIVE_DECOMMIT=t, or \
             MallocExtension::ReleaseFreeMemory() in the program"
        }
        (Cause::Kept, _) => {
            "few free spans are returned, and only while the program frees: TCMALLOC_AGGRESSIVE_DECOMMIT=t returns each, \
             MallocExtension::ReleaseFreeMemory() in the program returns all"
        }
        (Cause::Cached, _) => {
            "TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES=1048576 limits the caches of all threads together, except 512 KiB \
             each; with TCMALLOC_AGGRESSIVE_DECOMMIT=t the spans that leave them are returned"
        }
        _ => return None,
    };
    Some(text.to_owned())
}

/// Free memory that may be resident only because of the huge pages that malloc asks for.
fn glibc(cause: Cause, heap: &Heap) -> Option<String> {
    let is_touched = matches!(cause, Cause::Trimmable | Cause::Tops | Cause::Pinned);
    let free = heap.huge_pages.filter(|_| is_touched)?.free;
    (free >= cause.of_heap(heap) / 2 && free > 0).then(|| {
        format!(
            "malloc asks for huge pages, and at most {:.1} MB of free memory lie in them: {NO_HUGE_PAGES} and a restart end \
             that; ebb trim --inject returns whole free pages once",
            free as f64 / 1e6
        )
    })
}

fn musl(cause: Cause) -> Option<String> {
    (cause == Cause::Pinned).then(|| {
        "musl returns a group of slots when the last one is freed, and has no settings: ebb compare shows whether \
         another allocator packs closer"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_process::example;
    use ebb_process::snapshot::{HugePages, Process};

    fn asked(reader: &str, settings: &[(&str, &str)], cause: Cause) -> Option<String> {
        let settings = settings.iter();
        let heap = Heap {
            reader: reader.to_owned(),
            kept: 50,
            cached: 50,
            settings: settings.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            settings_variable: Some("_RJEM_MALLOC_CONF".to_owned()),
            ..Heap::default()
        };
        let snapshot = example::snapshot(vec![Process { heap: Some(heap), ..Process::default() }]);
        remedy(cause, &snapshot)
    }

    /// As glibc 2.43 is on aarch64 by default.
    #[test]
    fn huge_pages_of_malloc_are_ended_where_the_free_memory_lies_in_them() {
        let of = |free: u64, cause: Cause| {
            let heap = Heap {
                reader: "glibc 2.43".to_owned(),
                trimmable: 50_000_000,
                cached: 50_000_000,
                huge_pages: Some(HugePages { resident: 90_000_000, free }),
                ..Heap::default()
            };
            let process = Process { heap: Some(heap), ..Process::default() };
            remedy(cause, &example::snapshot(vec![process]))
        };
        let found = of(40_000_000, Cause::Trimmable).expect("a remedy");
        assert!(found.contains("40.0 MB") && found.contains(NO_HUGE_PAGES), "{found}");
        assert_eq!(of(10_000_000, Cause::Trimmable), None, "most of it lies elsewhere");
        assert_eq!(of(0, Cause::Trimmable), None);
        assert_eq!(of(50_000_000, Cause::Cached), None, "they do not cause that");
    }

    #[test]
    fn the_settings_in_force_decide_the_remedy() {
        let (on, off) = (("background_thread", "true"), ("background_thread", "false"));
        let (soon, never) = (("dirty_decay_ms", "10000"), ("dirty_decay_ms", "-1"));
        let wished = ("background_thread_asked", "true");
        let both = "glibc 2.36 and jemalloc 5.3.1 in engine.so";
        let no_release = ("tcmalloc_release_rate", "0");
        let (kept, je) = (Cause::Kept, "jemalloc 5.3.0");
        let runs = "_RJEM_MALLOC_CONF=background_thread:true";
        for (name, reader, settings, cause, words) in [
            ("idle", je, &[off, soon][..], kept, runs),
            ("forked", je, &[off, wished], kept, "fork"),
            ("never", je, &[on, never], kept, "never returned"),
            ("soon", je, &[on, soon], kept, "10000 ms"),
            ("the one that keeps pages", both, &[never], kept, "_RJEM_MALLOC_CONF"),
            ("spans", "tcmalloc 2.10", &[no_release], kept, "never returned"),
            ("it may be glibc's", both, &[never], Cause::Pinned, ""),
            ("no setting helps", "glibc 2.36", &[], Cause::Cached, ""),
            ("live", je, &[], Cause::Live, ""),
            ("it has none", je, &[], Cause::Lazy, ""),
        ] {
            let remedy = asked(reader, settings, cause).unwrap_or_default();
            assert!(remedy.contains(words) && remedy.is_empty() == words.is_empty(), "{name}: {remedy}");
        }
    }
}
