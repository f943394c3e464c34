//! Every cause with its figure: what applies, what does not, what is not known.

use std::collections::BTreeSet;

use super::bridge::owns_cgroup;
use super::{ledger, settings};
use crate::facts::diagnosis::{Cause, Finding, Ledger, Weight};
use ebb_process::snapshot::{Pool, Runtime, Snapshot};

/// Below this nothing is worth a service's trouble.
pub const LEAST_BYTES: u64 = 16_000_000;
/// A cause with this part of the whole is worth naming.
const PART: f64 = 0.2;
/// With this part it is the explanation.
const MAIN: f64 = 0.5;

/// All of them, those that apply in front, the largest first.
pub fn of(snapshot: &Snapshot, ledger: &Ledger) -> Vec<Finding> {
    let whole = whole(snapshot, ledger);
    let mut findings: Vec<Finding> = causes(snapshot, ledger)
        .into_iter()
        .map(|(cause, bytes)| finding(cause, bytes, whole, snapshot))
        .collect();
    findings.sort_by_key(|finding| (finding.weight, std::cmp::Reverse(finding.bytes)));
    findings
}

/// All that the target uses: of the cgroup where that is its own, else of the processes.
pub fn whole(snapshot: &Snapshot, ledger: &Ledger) -> u64 {
    let swap = swap(snapshot).unwrap_or(0);
    let processes = ledger.total + swap;
    match snapshot.cgroup.as_ref().and_then(|cgroup| cgroup.usage) {
        Some(usage) if owns_cgroup(snapshot) => processes.max(usage),
        _ => processes,
    }
}

fn swap(snapshot: &Snapshot) -> Option<u64> {
    snapshot.total(|process| process.status.swap)
}

fn causes(snapshot: &Snapshot, ledger: &Ledger) -> Vec<(Cause, Option<u64>)> {
    let heap_is_known = snapshot
        .processes
        .iter()
        .all(|process| process.heap.is_some());
    let heap = |cause: Cause| {
        let bytes = ledger.bytes(cause);
        (cause, (heap_is_known || bytes > 0).then_some(bytes))
    };
    let there = |cause: Cause| (cause, Some(ledger.bytes(cause)));
    let mut causes = vec![
        heap(Cause::Live),
        heap(Cause::Trimmable),
        heap(Cause::Tops),
        heap(Cause::Pinned),
        heap(Cause::Cached),
        heap(Cause::Kept),
        heap(Cause::Lazy),
        heap(Cause::Locked),
        there(Cause::Objects),
        there(Cause::FreeObjects),
        there(Cause::UnreadHeap),
        there(Cause::Anonymous),
        there(Cause::Stacks),
        there(Cause::Data),
        there(Cause::MappedFiles),
        there(Cause::SharedMemory),
        (Cause::Swap, swap(snapshot)),
    ];
    if owns_cgroup(snapshot) {
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
    let tmpfs = || {
        Some(
            parts
                .shared?
                .saturating_sub(ledger.bytes(Cause::SharedMemory)),
        )
    };
    let kernel = || {
        parts.kernel.or_else(|| {
            Some(
                parts.slab?
                    + parts.page_tables?
                    + parts.kernel_stack.unwrap_or(0)
                    + parts.sockets?,
            )
        })
    };
    vec![
        (Cause::PageCache, cache()),
        (Cause::Tmpfs, tmpfs()),
        (Cause::Kernel, kernel()),
    ]
}

fn finding(cause: Cause, bytes: Option<u64>, whole: u64, snapshot: &Snapshot) -> Finding {
    let share = bytes.map(|bytes| bytes as f64 / whole.max(1) as f64);
    let weight = match (bytes, share) {
        (Some(bytes), Some(share)) if bytes >= LEAST_BYTES && share >= PART => {
            match share >= MAIN {
                true => Weight::Main,
                false => Weight::Part,
            }
        }
        (Some(_), _) => Weight::RuledOut,
        (None, _) => Weight::Unknown,
    };
    let evidence = match (bytes, share) {
        (Some(bytes), Some(share)) => {
            format!(
                "{} of {} MB ({:.0} %)",
                megabytes(bytes),
                megabytes(whole),
                share * 100.0
            )
        }
        _ => "not known".to_owned(),
    };
    Finding {
        cause,
        weight,
        bytes,
        evidence,
        error: error(cause, snapshot),
        remedy: match weight {
            Weight::Main | Weight::Part => remedy(cause, snapshot),
            Weight::Unknown | Weight::RuledOut => None,
        },
    }
}

fn error(cause: Cause, snapshot: &Snapshot) -> Option<String> {
    let of_heap = matches!(
        cause,
        Cause::Live
            | Cause::Trimmable
            | Cause::Tops
            | Cause::Pinned
            | Cause::Cached
            | Cause::Kept
            | Cause::Lazy
            | Cause::Locked
    );
    if of_heap {
        let heaps = snapshot
            .processes
            .iter()
            .filter_map(|process| process.heap.as_ref());
        let worst = heaps.map(|heap| heap.error).fold(0.0, f64::max);
        return (worst > 0.0)
            .then(|| format!("within {:.0} % of the heap", (worst * 100.0).ceil()));
    }
    let closed = snapshot
        .processes
        .iter()
        .any(|process| process.memory.is_none());
    closed.then(|| "from status, shared pages counted for each process".to_owned())
}

fn remedy(cause: Cause, snapshot: &Snapshot) -> Option<String> {
    // An allocator's own setting, where one helps.
    if let Some(text) = settings::remedy(cause, snapshot) {
        return Some(text);
    }
    let text = match cause {
        Cause::Live => {
            "no allocator lowers this; whether it grows is seen by a second look (ebb why --watch, ebb diff)"
        }
        Cause::Trimmable => {
            "ebb trim --inject, or malloc_trim(0) in the program, gives it back once; an allocator that returns idle pages \
             by itself, always"
        }
        Cause::Tops => {
            "malloc_trim does not reach it; MALLOC_TRIM_THRESHOLD_=131072 keeps it from happening, or an allocator that \
             returns idle pages"
        }
        Cause::Pinned => {
            "live blocks lie on these pages: malloc_trim does not help; another allocator may pack them closer, as far as sizes \
             allow, and ebb compare shows how far"
        }
        Cause::Cached => {
            "caches of threads: fewer threads, or an allocator that empties idle caches"
        }
        Cause::Kept => {
            "the allocator keeps whole free pages to use them again: its settings say for how long"
        }
        Cause::Lazy => {
            "nothing: the kernel takes these pages when memory gets short, and only then does RSS fall"
        }
        Cause::Locked => {
            "the program locks its memory (mlock, mlockall): no trim and no allocator returns such pages before it unlocks them"
        }
        Cause::Objects => {
            "tracemalloc or memray show who holds them; whether they grow is seen by a second look"
        }
        Cause::FreeObjects => {
            "CPython gives back whole arenas only. On ebbmalloc its objects are malloc's blocks, and pages without a live one go \
             back; on other allocators that return idle pages PYTHONMALLOC=malloc does the same"
        }
        Cause::UnreadHeap => {
            "the allocator's own statistics tell live from free; a trial tells without them"
        }
        Cause::Anonymous if snapshot.pool() == Some(Pool::Arrow) => {
            "Arrow has a pool of its own, which no other malloc replaces: with ARROW_DEFAULT_MEMORY_POOL=system its buffers are \
             malloc's, and an allocator that returns idle pages gives them back"
        }
        Cause::Anonymous => match snapshot.runtime() {
            Some(Runtime::V8) => {
                "node --max-old-space-size bounds it; a heap snapshot (node --inspect) shows what is live"
            }
            Some(Runtime::Jvm) => "-Xmx bounds it; jcmd PID GC.heap_info shows what is live",
            Some(Runtime::Go) => {
                "GOMEMLIMIT bounds it; net/http/pprof's heap profile shows what is live"
            }
            Some(Runtime::Cpython) => {
                "object arenas: on ebbmalloc CPython's objects are malloc's blocks, which are seen and returned; tracemalloc or \
                 memray show what is live"
            }
            Some(Runtime::Ruby) => "GC.stat and ObjectSpace show what is live",
            None => "the program maps this memory itself, without malloc: no allocator changes it",
        },
        Cause::Stacks => "fewer threads: a stack keeps each page that was once touched",
        Cause::MappedFiles => {
            "pages of files: the kernel drops those that are not locked when memory gets short"
        }
        Cause::SharedMemory | Cause::Tmpfs => {
            "it stays until its file or segment is removed: df /dev/shm, ipcs -m"
        }
        Cause::PageCache => {
            "the kernel drops it when memory gets short; it is no reason for a larger limit"
        }
        Cause::Kernel => {
            "slabtop shows which objects; many connections or small files are the usual reason"
        }
        Cause::Swap => {
            "it comes back when it is touched; a limit that is too low is the usual reason"
        }
        Cause::Data => {
            "copies of a file's pages that the program wrote to, and its variables: no allocator changes it"
        }
        Cause::Metadata | Cause::Special => return None,
    };
    Some(text.to_owned())
}

/// Bytes in MB with about three digits.
pub fn megabytes(bytes: u64) -> String {
    let mb = bytes as f64 / 1e6;
    if mb >= 100.0 {
        format!("{mb:.0}")
    } else {
        format!("{mb:.1}")
    }
}

/// Memory that may be an allocator's, and whose.
fn unread_noun(snapshot: &Snapshot) -> String {
    let hidden = snapshot
        .processes
        .iter()
        .flat_map(|process| &process.hidden);
    let hidden: BTreeSet<String> = hidden.map(ledger::hidden_name).collect();
    match hidden.into_iter().collect::<Vec<_>>().as_slice() {
        [] => {
            let narrow = snapshot.missing.iter().map(|missing| &missing.why);
            let mut narrow = narrow.filter_map(|why| why.strip_suffix(": not read"));
            match narrow.find(|why| why.ends_with("-bit program")) {
                Some(program) => format!("memory of {program}, which is not read"),
                None => "an allocator's memory that cannot be told apart".to_owned(),
            }
        }
        names => format!(
            "memory of {}, or mapped by the program itself",
            names.join(", ")
        ),
    }
}

/// What a cause is called in a sentence.
pub fn noun(cause: Cause, snapshot: &Snapshot) -> String {
    match cause {
        Cause::Live => "live blocks",
        Cause::Trimmable => "free pages that malloc_trim would return",
        Cause::Tops => {
            "free pages at the ends of secondary arenas, which malloc_trim does not reach"
        }
        Cause::Pinned => "free memory on pages with live blocks (fragmentation)",
        Cause::Cached => "freed blocks in the caches of threads",
        Cause::Kept => "free pages that the allocator keeps",
        Cause::Lazy => "free pages that are given back, and not yet taken by the kernel",
        Cause::Locked => "free pages that are locked in memory (mlock)",
        Cause::Metadata => "the allocator's bookkeeping",
        Cause::Objects => "objects in CPython's arenas",
        Cause::FreeObjects => {
            "free memory in CPython's arenas, held by objects that live beside it"
        }
        Cause::UnreadHeap => return unread_noun(snapshot),
        Cause::Anonymous => match ledger::owners(snapshot).as_slice() {
            [] => "mapped by the program itself, not by malloc",
            owners => return format!("{}, or mapped by the program itself", owners.join(", ")),
        },
        Cause::Stacks => "stacks of threads",
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
