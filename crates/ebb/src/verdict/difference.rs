//! What grew between two snapshots: lines of the ledger, size classes, arenas, mappings, the cgroup.

use std::collections::{BTreeMap, BTreeSet};

use super::bridge::owns_cgroup;
use super::findings::{LEAST_BYTES, megabytes};
use super::growth::find_the_stack;
use super::ledger;
use crate::facts::diagnosis::Cause;
use crate::facts::difference::{Change, Difference, Unit};
use crate::facts::snapshot::{CgroupParts, FORMAT, Kind, Snapshot};

/// Changes of bytes below this are noise between any two looks.
const LEAST_CHANGE: u64 = 1 << 20;

/// Compares.
pub fn of(before: &Snapshot, after: &Snapshot) -> Difference {
    let mut changes = changes(before, after);
    changes.retain(|change| match change.unit {
        Unit::Bytes => change.before.abs_diff(change.after) >= LEAST_CHANGE,
        Unit::Count => change.before != change.after,
    });
    // Bytes in front, in them what grew the most.
    changes.sort_by_key(|change| (change.unit, std::cmp::Reverse(change.growth())));
    let (from, to) = (ledger::of(before).total, ledger::of(after).total);
    let live = |snapshot| ledger::of(snapshot).bytes(Cause::Live);
    let live_grew = live(after).saturating_sub(live(before));
    let grew = changes
        .iter()
        .find(|change| change.unit == Unit::Bytes && change.growth() > 0)
        .map_or_else(String::new, |change| {
            format!(
                ", the most of it in {} (+{} MB)",
                change.what,
                megabytes(change.growth() as u64)
            )
        });
    let verb = match to.cmp(&from) {
        std::cmp::Ordering::Greater => "grew",
        std::cmp::Ordering::Less => "shrank",
        std::cmp::Ordering::Equal => "stayed",
    };
    Difference {
        sentence: format!(
            "{} {verb} from {} to {} MB{grew}.",
            after.target.asked,
            megabytes(from),
            megabytes(to)
        ),
        // The monotonic clock starts anew at boot.
        seconds: (after.at_s > before.at_s).then_some(after.at_s - before.at_s),
        cautions: cautions(before, after),
        next: (live_grew >= LEAST_BYTES).then(|| {
            let runtime = after.runtime();
            find_the_stack(&super::of(after.clone()), runtime)
        }),
        changes,
    }
}

/// The figures of a snapshot by name.
fn figures(snapshot: &Snapshot) -> BTreeMap<(String, Unit), u64> {
    let mut figures: BTreeMap<(String, Unit), u64> = BTreeMap::new();
    let mut add = |what: String, unit, value: u64| {
        *figures.entry((what, unit)).or_default() += value;
    };
    for line in ledger::of(snapshot).lines {
        add(
            super::findings::noun(line.cause, snapshot),
            Unit::Bytes,
            line.bytes,
        );
    }
    for process in &snapshot.processes {
        add("threads".into(), Unit::Count, process.threads);
        for (kind, usage) in process.memory.iter().flatten() {
            add(
                format!("mappings of {}", kind_noun(*kind)),
                Unit::Count,
                usage.mappings,
            );
        }
        let python = process.python.iter();
        for of in python.clone().flat_map(|python| &python.types) {
            let name = of.name.as_deref().unwrap_or_default();
            add(format!("Python's {name} objects"), Unit::Bytes, of.bytes);
        }
        for of in python.flat_map(|python| python.buffers.iter().flatten()) {
            let whose = of.name.as_deref().unwrap_or("no Python object");
            add(format!("large blocks of {whose}"), Unit::Bytes, of.bytes);
        }
        let Some(heap) = &process.heap else { continue };
        if let Some(arenas) = heap.arenas {
            add("arenas".into(), Unit::Count, arenas);
        }
        for (size, class) in &heap.classes {
            add(
                format!("live blocks up to {size} B"),
                Unit::Bytes,
                class.bytes,
            );
            add(
                format!("live blocks up to {size} B"),
                Unit::Count,
                class.count,
            );
        }
    }
    add(
        "processes".into(),
        Unit::Count,
        snapshot.processes.len() as u64,
    );
    // Of a cgroup that others are in, too, it is not known whose a growth is.
    let parts = match &snapshot.cgroup {
        Some(cgroup) if owns_cgroup(snapshot) => cgroup.parts,
        _ => CgroupParts::default(),
    };
    for (what, bytes) in [
        ("page cache and files of the cgroup", parts.file),
        ("slab of the cgroup", parts.slab),
        ("kernel memory of the cgroup", parts.kernel),
        ("sockets of the cgroup", parts.sockets),
    ] {
        if let Some(bytes) = bytes {
            add(what.into(), Unit::Bytes, bytes);
        }
    }
    figures
}

fn changes(before: &Snapshot, after: &Snapshot) -> Vec<Change> {
    let (before, after) = (figures(before), figures(after));
    let names: BTreeSet<&(String, Unit)> = before.keys().chain(after.keys()).collect();
    names
        .into_iter()
        .map(|name| Change {
            what: name.0.clone(),
            unit: name.1,
            before: before.get(name).copied().unwrap_or(0),
            after: after.get(name).copied().unwrap_or(0),
        })
        .collect()
}

fn cautions(before: &Snapshot, after: &Snapshot) -> Vec<String> {
    let identity = |snapshot: &Snapshot| {
        let first = snapshot.processes.first()?;
        Some((first.pid, first.started_ticks))
    };
    let read = |snapshot: &Snapshot| {
        snapshot
            .processes
            .iter()
            .filter(|process| process.heap.is_some())
            .count()
    };
    let mut cautions = Vec::new();
    if identity(before) != identity(after) {
        cautions.push("the first process is another one: it was restarted between both".to_owned());
    }
    if before.format != FORMAT || after.format != FORMAT {
        cautions.push(format!(
            "a file has another format than {FORMAT}; its figures may mean something else"
        ));
    }
    if (read(before) == 0) != (read(after) == 0) {
        cautions.push("the heaps were read in one of both only".to_owned());
    }
    if after.at_s <= before.at_s {
        cautions.push("the second was not taken after the first, or after another boot".to_owned());
    }
    cautions
}

fn kind_noun(kind: Kind) -> &'static str {
    match kind {
        Kind::Brk => "the break heap",
        Kind::Malloc => "malloc",
        Kind::Anonymous => "anonymous memory",
        Kind::Stack => "stacks",
        Kind::Data => "data",
        Kind::File => "files",
        Kind::Shared => "shared memory",
        Kind::Hugetlb => "hugetlbfs",
        Kind::Special => "the kernel",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::example;
    use crate::facts::snapshot::{Class, Heap, Process, Usage};

    const MB: u64 = 1_000_000;

    fn snapshot(at_s: f64, live_mb: u64, count: u64) -> Snapshot {
        let usage = Usage {
            mappings: count,
            rss: live_mb * MB,
            pss: live_mb * MB,
            ..Usage::default()
        };
        Snapshot {
            at_s,
            ..example::snapshot(vec![Process {
                pid: 7,
                memory: Some(BTreeMap::from([(Kind::Brk, usage)])),
                heap: Some(Heap {
                    live: live_mb * MB,
                    resident: live_mb * MB,
                    arenas: Some(2),
                    classes: BTreeMap::from([(
                        64,
                        Class {
                            count,
                            bytes: live_mb * MB,
                        },
                    )]),
                    ..Heap::default()
                }),
                ..Process::default()
            }])
        }
    }

    #[test]
    fn what_grew_is_named_the_largest_first_and_noise_is_not() {
        let difference = of(&snapshot(1.0, 50, 10), &snapshot(61.0, 90, 20));
        assert!(
            difference
                .sentence
                .starts_with("7 grew from 50.0 to 90.0 MB"),
            "{}",
            difference.sentence
        );
        assert_eq!(difference.seconds, Some(60.0));
        let named: Vec<&str> = difference
            .changes
            .iter()
            .map(|change| change.what.as_str())
            .collect();
        assert!(named.contains(&"live blocks up to 64 B"), "{named:?}");
        assert!(!named.contains(&"arenas"), "they did not change: {named:?}");
        assert_eq!(difference.cautions, Vec::<String>::new());
        assert_eq!(difference.next.as_deref(), Some("heaptrack -p 7"));
    }

    #[test]
    fn two_processes_are_not_passed_off_as_one() {
        let mut other = snapshot(61.0, 50, 10);
        other.processes[0].started_ticks = 9;
        let difference = of(&snapshot(1.0, 50, 10), &other);
        assert_eq!(difference.cautions.len(), 1, "{:?}", difference.cautions);
        assert_eq!(difference.next, None);
        assert_eq!(difference.changes, []);
    }
}
