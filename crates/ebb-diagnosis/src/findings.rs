//! Every cause with its figure: what applies, what does not, what is not known.

use std::collections::BTreeSet;

use super::{ledger, settings};
use crate::facts::diagnosis::{Cause, Finding, Ledger, Weight};
use ebb_process::snapshot::{Pool, Runtime, Snapshot};

/// Smaller amounts are not worth a change.
pub const LEAST_BYTES: u64 = 16_000_000;
/// At this share of the whole a cause is named.
const PART: f64 = 0.2;
/// At this share of the whole a cause is the main one.
const MAIN: f64 = 0.5;

/// All causes of a snapshot: first the causes that apply, the largest first.
pub fn of(snapshot: &Snapshot, ledger: &Ledger) -> Vec<Finding> {
    let whole = whole(snapshot, ledger);
    let mut findings: Vec<Finding> =
        causes(snapshot, ledger).into_iter().map(|(cause, bytes)| finding(cause, bytes, whole, snapshot)).collect();
    findings.sort_by_key(|finding| (finding.weight, std::cmp::Reverse(finding.bytes)));
    findings
}

/// All that the target uses: of the cgroup where that is its own, else of the processes.
pub fn whole(snapshot: &Snapshot, ledger: &Ledger) -> u64 {
    let swap = swap(snapshot).unwrap_or(0);
    let processes = ledger.total + swap;
    match snapshot.cgroup.as_ref().and_then(|cgroup| cgroup.usage) {
        Some(usage) if ledger::owns_cgroup(snapshot) => processes.max(usage),
        _ => processes,
    }
}

fn swap(snapshot: &Snapshot) -> Option<u64> {
    snapshot.total(|process| process.status.swap)
}

fn causes(snapshot: &Snapshot, ledger: &Ledger) -> Vec<(Cause, Option<u64>)> {
    let heap_is_known = ledger::has_all_heaps(snapshot);
    let of_heap = ledger::OF_HEAP.map(|cause| {
        let bytes = ledger.bytes(cause);
        (cause, (heap_is_known || bytes > 0).then_some(bytes))
    });
    let others = [
        Cause::Objects,
        Cause::FreeObjects,
        Cause::UnreadHeap,
        Cause::Anonymous,
        Cause::Stacks,
        Cause::Data,
        Cause::MappedFiles,
        Cause::SharedMemory,
    ];
    let others = others.map(|cause| (cause, Some(ledger.bytes(cause))));
    let mut causes = [&of_heap[..], &others, &[(Cause::Swap, swap(snapshot))]].concat();
    if ledger::owns_cgroup(snapshot) {
        causes.extend(of_cgroup(snapshot, ledger));
    }
    causes
}

/// What no process maps: only of a cgroup that is the target's own.
fn of_cgroup(snapshot: &Snapshot, ledger: &Ledger) -> Vec<(Cause, Option<u64>)> {
    let Some(cgroup) = &snapshot.cgroup else {
        return Vec::new();
    };
    let parts = &cgroup.parts;
    let cache = || {
        // Mapped pages are in the ledger already, and so is shared memory.
        let mapped = parts.mapped.unwrap_or(0);
        Some(parts.file?.saturating_sub(parts.shared?.max(mapped)))
    };
    let tmpfs = || Some(parts.shared?.saturating_sub(ledger.bytes(Cause::SharedMemory)));
    let kernel = || {
        let stacks = parts.kernel_stack.unwrap_or(0);
        parts.kernel.or_else(|| Some(parts.slab? + parts.page_tables? + stacks + parts.sockets?))
    };
    vec![(Cause::PageCache, cache()), (Cause::Tmpfs, tmpfs()), (Cause::Kernel, kernel())]
}

fn finding(cause: Cause, bytes: Option<u64>, whole: u64, snapshot: &Snapshot) -> Finding {
    let (weight, evidence) = match bytes {
        None => (Weight::Unknown, "not known".to_owned()),
        Some(bytes) => {
            let share = bytes as f64 / whole.max(1) as f64;
            let weight = if bytes < LEAST_BYTES || share < PART {
                Weight::RuledOut
            } else if share < MAIN {
                Weight::Part
            } else {
                Weight::Main
            };
            let (bytes, whole) = (megabytes(bytes), megabytes(whole));
            (weight, format!("{bytes} of {whole} MB ({:.0} %)", share * 100.0))
        }
    };
    let applies = matches!(weight, Weight::Main | Weight::Part);
    let remedy = applies.then(|| remedy(cause, snapshot)).flatten();
    Finding { cause, weight, bytes, evidence, error: error(cause, snapshot), remedy }
}

fn error(cause: Cause, snapshot: &Snapshot) -> Option<String> {
    if ledger::OF_HEAP.contains(&cause) {
        let worst = ledger::heaps(&snapshot.processes).map(|heap| heap.error).fold(0.0, f64::max);
        return (worst > 0.0).then(|| format!("within {:.0} % of the heap", (worst * 100.0).ceil()));
    }
    let closed = snapshot.processes.iter().any(|process| process.memory.is_none());
    closed.then(|| "from status, shared pages counted for each process".to_owned())
}

fn remedy(cause: Cause, snapshot: &Snapshot) -> Option<String> {
    // An allocator's own setting, where one helps.
    if let Some(text) = settings::remedy(cause, snapshot) {
        return Some(text);
    }
    let text = match cause {
        Cause::Live => "no allocator lowers this; ebb why --watch or ebb diff shows whether it grows",
        Cause::Trimmable => {
            "ebb trim --inject, or malloc_trim(0) in the program, returns it once; an allocator that returns idle pages does so \
             always"
        }
        Cause::Tops => {
            "malloc_trim does not return it; MALLOC_TRIM_THRESHOLD_=131072 or an allocator that returns idle pages \
             prevents it"
        }
        Cause::Pinned => {
            "these pages contain live blocks, so malloc_trim does not help; another allocator may pack them closer, \
             and ebb compare shows how far"
        }
        Cause::Cached => "threads' caches: use fewer threads, or an allocator that empties idle caches",
        Cause::Kept => "the allocator keeps whole free pages for reuse; its settings define for how long",
        Cause::Lazy => "nothing to do: the kernel takes these pages when memory is short, and RSS falls then",
        Cause::Locked => {
            "the program locks its memory (mlock, mlockall): malloc_trim and allocators cannot return such pages until it unlocks them"
        }
        Cause::Objects => "tracemalloc or memray show what holds them; ebb why --watch shows whether they grow",
        Cause::FreeObjects => {
            "CPython returns whole arenas only. ebbmalloc returns the pages of its free objects; so does another \
             allocator that returns idle pages, with PYTHONMALLOC=malloc"
        }
        Cause::UnreadHeap => "the allocator's own statistics show live and free memory; a trial works without them",
        Cause::Anonymous if snapshot.pool() == Some(Pool::Arrow) => {
            "Arrow has a pool of its own, which another malloc does not replace: with \
             ARROW_DEFAULT_MEMORY_POOL=system its buffers come from malloc, and an allocator that returns idle pages \
             returns them"
        }
        Cause::Anonymous => match snapshot.runtime() {
            Some(Runtime::V8) => {
                "node --max-old-space-size limits it; a heap snapshot (node --inspect) shows what is live"
            }
            Some(Runtime::Jvm) => "-Xmx limits it; jcmd PID GC.heap_info shows what is live",
            Some(Runtime::Go) => "GOMEMLIMIT limits it; net/http/pprof's heap profile shows what is live",
            Some(Runtime::Cpython) => {
                "object arenas: ebbmalloc allocates CPython's objects itself, so ebb can read them and their pages \
                 are returned; tracemalloc or memray show what is live"
            }
            Some(Runtime::Ruby) => "GC.stat and ObjectSpace show what is live",
            None => "the program maps this memory itself, without malloc: no allocator changes it",
        },
        Cause::Stacks => "use fewer threads: a stack keeps each page that was touched once",
        Cause::MappedFiles => "file pages: when memory is short the kernel drops them, unless they are locked",
        Cause::SharedMemory | Cause::Tmpfs => "it stays until its file or segment is removed: df /dev/shm, ipcs -m",
        Cause::PageCache => "the kernel drops it when memory is short; it needs no larger limit",
        Cause::Kernel => "slabtop shows the objects; the usual reason is many connections or small files",
        Cause::Swap => "it is read back when it is touched; the usual reason is a limit that is too low",
        Cause::Data => "file pages that the program has written to, and its variables: no allocator changes it",
        Cause::Metadata | Cause::Special => return None,
    };
    Some(text.to_owned())
}

/// Bytes in MB with about three digits.
pub fn megabytes(bytes: u64) -> String {
    let mb = bytes as f64 / 1e6;
    if mb >= 100.0 { format!("{mb:.0}") } else { format!("{mb:.1}") }
}

/// Memory that may be an allocator's, and whose.
fn unread_noun(snapshot: &Snapshot) -> String {
    let hidden = snapshot.processes.iter().flat_map(|process| &process.hidden);
    let hidden: BTreeSet<String> = hidden.map(ledger::hidden_name).collect();
    match hidden.into_iter().collect::<Vec<_>>().as_slice() {
        [] => {
            let narrow = snapshot.missing.iter().map(|missing| &missing.why);
            let mut narrow = narrow.filter_map(|why| why.strip_suffix(": not read"));
            match narrow.find(|why| why.ends_with("-bit program")) {
                Some(program) => format!("memory of {program}, which is not read"),
                None => "an allocator's memory that cannot be identified".to_owned(),
            }
        }
        names => format!("memory of {}, or mapped by the program itself", names.join(", ")),
    }
}

/// What a runtime says of its own heap, in brackets.
fn managed(snapshot: &Snapshot) -> String {
    ledger::managed(&snapshot.processes).map_or(String::new(), |(committed, used)| {
        let [committed, used] = [committed, used].map(megabytes);
        let when = match snapshot.runtime() {
            Some(Runtime::V8) => "in objects, collected or not",
            _ => "in use after the last collection",
        };
        format!(" ({committed} MB committed, {used} MB {when})")
    })
}

/// What a cause is called in a sentence.
pub fn noun(cause: Cause, snapshot: &Snapshot) -> String {
    match cause {
        Cause::Live => "live blocks",
        Cause::Trimmable => "free pages that malloc_trim would return",
        Cause::Tops => "free pages at the ends of secondary arenas, which malloc_trim does not return",
        Cause::Pinned => "free memory on pages with live blocks (fragmentation)",
        Cause::Cached => "freed blocks in threads' caches",
        Cause::Kept => "free pages that the allocator keeps",
        Cause::Lazy => "free pages that the kernel may take (MADV_FREE) and has not taken yet",
        Cause::Locked => "free pages that are locked in memory (mlock)",
        Cause::Metadata => "the allocator's bookkeeping",
        Cause::Objects => "objects in CPython's arenas",
        Cause::FreeObjects => "free memory in CPython's arenas that contain live objects",
        Cause::UnreadHeap => return unread_noun(snapshot),
        Cause::Anonymous => match ledger::owners(&snapshot.processes).as_slice() {
            [] => "mapped by the program itself, not by malloc",
            owners => {
                let figures = managed(snapshot);
                return format!("{}{figures}, or mapped by the program itself", owners.join(", "));
            }
        },
        Cause::Stacks => "threads' stacks",
        Cause::Data => "data of programs and libraries",
        Cause::MappedFiles => "mapped files",
        Cause::SharedMemory => "shared memory (tmpfs, memfd, System V)",
        Cause::Special => "the kernel's mappings",
        Cause::PageCache => "page cache",
        Cause::Tmpfs => "files on tmpfs",
        Cause::Kernel => "kernel memory",
        Cause::Swap => "in swap",
    }
    .to_owned()
}
