//! The ledger: where the target's memory is, summed over its processes.
//!
//! The total is PSS, so a page that workers share counts once. A heap's reader counts resident pages
//! whole; its figures are scaled by the share that PSS gives the process of them. What is left over
//! is told as it is.

use std::collections::{BTreeMap, BTreeSet};

use crate::facts::diagnosis::{Cause, Ledger, Line};
use ebb_process::snapshot::{Heap, Hidden, Kind, Objects, Process, Runtime, Snapshot};

/// The order of the lines.
const ORDER: &[Cause] = &[
    Cause::Live,
    Cause::Trimmable,
    Cause::Tops,
    Cause::Pinned,
    Cause::Cached,
    Cause::Kept,
    Cause::Lazy,
    Cause::Locked,
    Cause::Metadata,
    Cause::Objects,
    Cause::FreeObjects,
    Cause::UnreadHeap,
    Cause::Anonymous,
    Cause::Stacks,
    Cause::Data,
    Cause::MappedFiles,
    Cause::SharedMemory,
    Cause::Special,
];

/// What was freed and is held.
const HELD: [Cause; 8] = [
    Cause::Trimmable,
    Cause::Tops,
    Cause::Pinned,
    Cause::Cached,
    Cause::Kept,
    Cause::Lazy,
    Cause::Locked,
    Cause::FreeObjects,
];

/// Builds the ledger of a snapshot.
pub fn of(snapshot: &Snapshot) -> Ledger {
    let mut sums: BTreeMap<Cause, u64> = BTreeMap::new();
    let mut total = 0;
    let mut proportional = true;
    for process in &snapshot.processes {
        let (of_process, lines) = match &process.memory {
            Some(_) => with_mappings(process),
            None => {
                proportional = false;
                without_mappings(process)
            }
        };
        total += of_process;
        for (cause, bytes) in lines {
            *sums.entry(cause).or_default() += bytes;
        }
    }
    let lines: Vec<Line> = ORDER
        .iter()
        .filter_map(|&cause| {
            let bytes = sums.get(&cause).copied().filter(|&bytes| bytes > 0)?;
            Some(Line { cause, bytes, note: note(cause, snapshot) })
        })
        .collect();
    let explained: u64 = lines.iter().map(|line| line.bytes).sum();
    Ledger { total, proportional, remainder: total as i64 - explained as i64, lines }
}

impl Ledger {
    /// The bytes of one line.
    pub fn bytes(&self, cause: Cause) -> u64 {
        self.lines.iter().filter(|line| line.cause == cause).map(|line| line.bytes).sum()
    }

    /// What the allocator holds of memory that was freed.
    pub fn held(&self) -> u64 {
        HELD.iter().map(|&cause| self.bytes(cause)).sum()
    }
}

type Lines = Vec<(Cause, u64)>;

fn with_mappings(process: &Process) -> (u64, Lines) {
    let usage = |kind| process.usage(kind).unwrap_or_default();
    // Where malloc's memory can be: the break heap and what is anonymous.
    let mut malloc = usage(Kind::Brk);
    malloc.add(usage(Kind::Malloc));
    let mut anywhere = malloc;
    anywhere.add(usage(Kind::Anonymous));
    let mut lines = match &process.heap {
        Some(heap) => {
            let mut lines = of_heap(heap, anywhere.pss, anywhere.rss);
            if let Some(objects) = &process.objects {
                lines.extend(of_objects(objects, anywhere.pss, anywhere.rss));
            }
            let heaps: u64 = lines.iter().map(|(_, bytes)| bytes).sum();
            let beside = anywhere.pss.saturating_sub(heaps);
            let unread = scaled(unread_beside(process), anywhere.pss, anywhere.rss).min(beside);
            lines.push((Cause::UnreadHeap, unread));
            lines.push((Cause::Anonymous, beside - unread));
            lines
        }
        // A runtime maps its own heap; without one, what is anonymous may be arenas of malloc.
        None if process.runtime.is_some() => {
            vec![(Cause::UnreadHeap, malloc.pss), (Cause::Anonymous, usage(Kind::Anonymous).pss)]
        }
        None => vec![(Cause::UnreadHeap, anywhere.pss)],
    };
    let rest = [
        (Cause::Stacks, Kind::Stack),
        (Cause::Data, Kind::Data),
        (Cause::MappedFiles, Kind::File),
        (Cause::SharedMemory, Kind::Shared),
        (Cause::Special, Kind::Special),
    ];
    lines.extend(rest.map(|(cause, kind)| (cause, usage(kind).pss)));
    let total = process
        .memory
        .iter()
        .flat_map(|memory| memory.iter())
        // RSS does not count these either, and a ledger that does would not meet it.
        .filter(|(kind, _)| **kind != Kind::Hugetlb)
        .map(|(_, usage)| usage.pss)
        .sum();
    (total, lines)
}

/// The most that allocators may have of the memory that no reader found.
fn unread_beside(process: &Process) -> u64 {
    match (process.hidden.is_empty(), &process.heap) {
        (false, _) => u64::MAX,
        (true, Some(heap)) => heap.missing,
        (true, None) => 0,
    }
}

/// A reader's resident bytes as their share by PSS.
fn scaled(bytes: u64, pss: u64, rss: u64) -> u64 {
    match rss {
        0 => bytes,
        _ => {
            let share = u128::from(bytes) * u128::from(pss) / u128::from(rss);
            u64::try_from(share).unwrap_or(u64::MAX)
        }
    }
}

fn of_objects(objects: &Objects, pss: u64, rss: u64) -> Lines {
    let free = objects.resident.saturating_sub(objects.live);
    vec![
        (Cause::Objects, scaled(objects.live, pss, rss)),
        (Cause::FreeObjects, scaled(free, pss, rss)),
    ]
}

fn of_heap(heap: &Heap, pss: u64, rss: u64) -> Lines {
    [
        (Cause::Live, heap.live),
        (Cause::Trimmable, heap.trimmable),
        (Cause::Tops, heap.tops),
        (Cause::Pinned, heap.pinned),
        (Cause::Cached, heap.cached),
        (Cause::Kept, heap.kept),
        (Cause::Lazy, heap.lazy),
        (Cause::Locked, heap.locked),
        (Cause::Metadata, heap.metadata),
        (Cause::UnreadHeap, heap.unread),
    ]
    .map(|(cause, bytes)| (cause, scaled(bytes, pss, rss)))
    .to_vec()
}

/// From the figures that are open to all.
fn without_mappings(process: &Process) -> (u64, Lines) {
    let status = &process.status;
    let of = |figure: Option<u64>| figure.unwrap_or(0);
    let anonymous = match process.runtime {
        None => Cause::UnreadHeap,
        Some(_) => Cause::Anonymous,
    };
    (
        of(status.rss),
        vec![
            (anonymous, of(status.anon)),
            (Cause::MappedFiles, of(status.file)),
            (Cause::SharedMemory, of(status.shared)),
        ],
    )
}

fn note(cause: Cause, snapshot: &Snapshot) -> Option<String> {
    let processes = &snapshot.processes;
    match cause {
        Cause::Stacks => {
            let stacks: u64 = processes
                .iter()
                .filter_map(|process| process.usage(Kind::Stack))
                .map(|usage| usage.mappings)
                .sum();
            Some(match stacks {
                1 => "1 stack".to_owned(),
                _ => format!("{stacks} stacks"),
            })
        }
        Cause::Anonymous => {
            let owners = owners(snapshot);
            (!owners.is_empty())
                .then(|| format!("{} and what the program maps itself", owners.join(", ")))
        }
        Cause::UnreadHeap => {
            let unread = names(
                processes
                    .iter()
                    .filter(|process| process.heap.is_none())
                    .filter_map(|process| process.allocator.name.clone()),
            );
            let hidden =
                names(processes.iter().flat_map(|process| &process.hidden).map(hidden_name));
            let is_missing =
                |process: &Process| process.heap.as_ref().is_some_and(|heap| heap.missing > 0);
            match (unread.is_empty(), hidden.is_empty()) {
                (false, _) => Some(format!("{unread}: not known whether live or free")),
                (true, false) => Some(format!("{hidden}, or what the program maps itself")),
                (true, true) => processes
                    .iter()
                    .any(is_missing)
                    .then(|| "counted by malloc, but not found".to_owned()),
            }
        }
        Cause::Live => {
            let readers = names(
                processes
                    .iter()
                    .filter_map(|process| process.heap.as_ref())
                    .map(|heap| heap.reader.clone()),
            );
            (!readers.is_empty()).then_some(readers)
        }
        Cause::Objects => {
            let readers = processes.iter().filter_map(|process| process.objects.as_ref());
            let readers = names(readers.map(|objects| objects.reader.clone()));
            (!readers.is_empty()).then_some(readers)
        }
        _ => None,
    }
}

/// What an allocator out of sight is called.
pub(super) fn hidden_name(hidden: &Hidden) -> String {
    let file = hidden.file.rsplit('/').next().unwrap_or_default();
    match &hidden.name {
        Some(name) => format!("{name} in {file}"),
        None => format!("{file}, which was not searched"),
    }
}

/// Who may have memory besides `malloc`: pools of libraries and runtimes' own heaps, each once.
pub(super) fn owners(snapshot: &Snapshot) -> Vec<String> {
    let pools = snapshot
        .processes
        .iter()
        .filter(|process| !process.pool_is_read())
        .filter_map(|process| process.pool)
        .map(|pool| pool.to_string());
    let runtimes = snapshot
        .processes
        .iter()
        .filter_map(|process| process.runtime)
        .map(|runtime| own_heap(runtime).to_owned());
    let owners: BTreeSet<String> = pools.chain(runtimes).collect();
    owners.into_iter().collect()
}

/// What a runtime's memory is called.
fn own_heap(runtime: Runtime) -> &'static str {
    match runtime {
        Runtime::Cpython => "CPython's own heap",
        Runtime::V8 => "V8's own heap",
        Runtime::Jvm => "the JVM's own heap",
        Runtime::Go => "Go's own heap",
        Runtime::Ruby => "Ruby's own heap",
    }
}

/// Each name once, in order.
fn names(all: impl Iterator<Item = String>) -> String {
    let mut names: Vec<String> = all.collect();
    names.sort();
    names.dedup();
    names.join(", ")
}
