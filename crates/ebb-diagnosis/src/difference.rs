//! What grew between two snapshots: lines of the ledger, size classes, arenas, mappings, the cgroup.

use std::collections::{BTreeMap, BTreeSet};

use super::findings::{LEAST_BYTES, megabytes};
use super::growth::find_the_stack;
use super::ledger;
use crate::facts::diagnosis::Cause;
use crate::facts::growth::{Change, Difference, Unit};
use ebb_process::snapshot::{CgroupParts, FORMAT, Kind, Snapshot};

/// Changes of bytes below this are noise between any two looks, and so are those of counts of things that changed by
/// fewer bytes.
pub(super) const LEAST_CHANGE: u64 = 1 << 20;

/// Compares.
pub fn of(before: &Snapshot, after: &Snapshot) -> Difference {
    let (figures_before, figures_after) = (figures(before), figures(after));
    let changes = changes(&figures_before, &figures_after);
    let (from, to) = (ledger::of(&before.processes).total, ledger::of(&after.processes).total);
    let live = |snapshot: &Snapshot| ledger::of(&snapshot.processes).bytes(Cause::Live);
    let live_grew = live(after).saturating_sub(live(before));
    Difference {
        sentence: sentence(&after.target.asked, from, to, &changes),
        // The monotonic clock starts anew at boot.
        seconds: (after.at_s > before.at_s).then_some(after.at_s - before.at_s),
        cautions: cautions(before, after),
        next: (live_grew >= LEAST_BYTES).then(|| find_the_stack(after)),
        changes,
    }
}

/// What changed in all, and what most of that change is in.
fn sentence(asked: &str, from: u64, to: u64, changes: &[Change]) -> String {
    let bytes = || changes.iter().filter(|change| change.unit == Unit::Bytes);
    let part = |change: &Change| {
        let sign = if change.growth() < 0 { "\u{2212}" } else { "+" };
        format!("{} ({sign}{} MB)", change.what, megabytes(change.growth().unsigned_abs()))
    };
    let most = |change: &Change| format!(", mostly in {}", part(change));
    if from.abs_diff(to) < LEAST_CHANGE {
        // Lines of the ledger come before size classes, and the last of equal ones would be taken.
        let largest = bytes().rev().max_by_key(|change| change.growth().unsigned_abs());
        let within = largest.map_or_else(String::new, |change| format!("; the largest change is in {}", part(change)));
        return format!("{asked} is unchanged at {} MB{within}.", megabytes(to));
    }
    let (verb, largest) = if to > from {
        ("grew", bytes().rev().max_by_key(|change| change.growth()))
    } else {
        ("shrank", bytes().min_by_key(|change| change.growth()))
    };
    // One that went the other way explains nothing.
    let largest = largest.filter(|change| (change.growth() > 0) == (to > from));
    format!(
        "{asked} {verb} from {} to {} MB{}.",
        megabytes(from),
        megabytes(to),
        largest.map_or_else(String::new, most)
    )
}

#[derive(Clone, Copy, Debug, Default)]
struct Figure {
    value: u64,
    /// Of a count of things that have a size: their bytes, which decide whether the change matters.
    bytes: Option<u64>,
}

type Figures = BTreeMap<(String, Unit), Figure>;

fn figures(snapshot: &Snapshot) -> Figures {
    let mut figures = Figures::new();
    add_counts(&mut figures, snapshot);
    add_bytes(&mut figures, snapshot);
    figures
}

fn add_counts(figures: &mut Figures, snapshot: &Snapshot) {
    let mut count = |what: String, value: u64, bytes: Option<u64>| {
        let sum = figures.entry((what, Unit::Count)).or_default();
        sum.value += value;
        sum.bytes = bytes.map(|bytes| bytes + sum.bytes.unwrap_or(0));
    };
    count("processes".into(), snapshot.processes.len() as u64, None);
    for process in &snapshot.processes {
        count("threads".into(), process.threads, None);
        for (kind, usage) in process.memory.iter().flatten() {
            let what = format!("mappings of {}", kind_noun(*kind));
            count(what, usage.mappings, Some(usage.size));
        }
    }
    for heap in ledger::heaps(&snapshot.processes) {
        if let Some(arenas) = heap.arenas {
            count("arenas".into(), arenas, None);
        }
        for (size, class) in &heap.classes {
            count(format!("live blocks up to {size} B"), class.count, Some(class.bytes));
        }
    }
}

fn add_bytes(figures: &mut Figures, snapshot: &Snapshot) {
    let mut add = |what: String, value: u64| {
        figures.entry((what, Unit::Bytes)).or_default().value += value;
    };
    for line in ledger::of(&snapshot.processes).lines {
        add(super::findings::noun(line.cause, snapshot), line.bytes);
    }
    for python in snapshot.processes.iter().filter_map(|process| process.python.as_ref()) {
        for of in &python.types {
            add(format!("Python's {} objects", of.name.as_deref().unwrap_or_default()), of.bytes);
        }
        for of in python.buffers.iter().flatten() {
            let whose = of.name.as_deref().unwrap_or("no Python object");
            add(format!("large blocks of {whose}"), of.bytes);
        }
    }
    for (size, class) in ledger::heaps(&snapshot.processes).flat_map(|heap| &heap.classes) {
        add(format!("live blocks up to {size} B"), class.bytes);
    }
    // Of a cgroup that others are in, too, it is not known whose a growth is.
    let own = snapshot.cgroup.as_ref().filter(|_| ledger::owns_cgroup(snapshot));
    let parts = own.map_or_else(CgroupParts::default, |cgroup| cgroup.parts);
    for (what, bytes) in [
        ("page cache and files of the cgroup", parts.file),
        ("slab of the cgroup", parts.slab),
        ("kernel memory of the cgroup", parts.kernel),
        ("sockets of the cgroup", parts.sockets),
    ] {
        if let Some(bytes) = bytes {
            add(what.into(), bytes);
        }
    }
}

/// What changed by so much that it is no noise: bytes in front, in them what grew the most.
fn changes(before: &Figures, after: &Figures) -> Vec<Change> {
    let names: BTreeSet<&(String, Unit)> = before.keys().chain(after.keys()).collect();
    let of = |figures: &Figures, name| figures.get(name).copied().unwrap_or_default();
    let matters = |unit, before: Figure, after: Figure| match (unit, before.bytes.or(after.bytes)) {
        (Unit::Bytes, _) => before.value.abs_diff(after.value) >= LEAST_CHANGE,
        (Unit::Count, None) => before.value != after.value,
        (Unit::Count, Some(_)) => {
            let bytes = |figure: Figure| figure.bytes.unwrap_or(0);
            before.value != after.value && bytes(before).abs_diff(bytes(after)) >= LEAST_CHANGE
        }
    };
    let mut changes = Vec::new();
    for name in names {
        let (before, after) = (of(before, name), of(after, name));
        let (what, unit) = name.clone();
        if matters(unit, before, after) {
            changes.push(Change { what, unit, before: before.value, after: after.value });
        }
    }
    changes.sort_by_key(|change| (change.unit, std::cmp::Reverse(change.growth())));
    changes
}

/// What makes two snapshots hard to compare.
pub(super) fn cautions(before: &Snapshot, after: &Snapshot) -> Vec<String> {
    let identity = |snapshot: &Snapshot| {
        let first = snapshot.processes.first()?;
        Some((first.pid, first.started_ticks))
    };
    let has_heaps = |snapshot: &Snapshot| ledger::heaps(&snapshot.processes).next().is_some();
    let is_other_format = before.format != FORMAT || after.format != FORMAT;
    let format = format!("a file has another format than {FORMAT}; its figures may differ in meaning");
    let cautions = [
        (identity(before) != identity(after), "the two files are of different processes: it was restarted in between"),
        (is_other_format, format.as_str()),
        (has_heaps(before) != has_heaps(after), "only one of the two files has the heaps"),
        (after.at_s <= before.at_s, "the second file is older than the first, or was written after a reboot"),
    ];
    let apply = cautions.into_iter().filter(|(applies, _)| *applies);
    apply.map(|(_, caution)| caution.to_owned()).collect()
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
    use ebb_process::example;
    use ebb_process::snapshot::{Class, Heap, Process, Usage};

    const MB: u64 = 1_000_000;

    fn snapshot(at_s: f64, live_mb: u64, count: u64) -> Snapshot {
        let usage = Usage { mappings: count, rss: live_mb * MB, pss: live_mb * MB, ..Usage::default() };
        Snapshot {
            at_s,
            ..example::snapshot(vec![Process {
                pid: 7,
                memory: Some(BTreeMap::from([(Kind::Brk, usage)])),
                heap: Some(Heap {
                    live: live_mb * MB,
                    resident: live_mb * MB,
                    arenas: Some(2),
                    classes: BTreeMap::from([(64, Class { count, bytes: live_mb * MB })]),
                    ..Heap::default()
                }),
                ..Process::default()
            }])
        }
    }

    #[test]
    fn what_grew_is_named_the_largest_first_and_noise_is_not() {
        let difference = of(&snapshot(1.0, 50, 10), &snapshot(61.0, 90, 20));
        assert!(difference.sentence.starts_with("7 grew from 50.0 to 90.0 MB"), "{}", difference.sentence);
        assert_eq!(difference.seconds, Some(60.0));
        let named: Vec<&str> = difference.changes.iter().map(|change| change.what.as_str()).collect();
        assert!(named.contains(&"live blocks up to 64 B"), "{named:?}");
        assert!(!named.contains(&"arenas"), "they did not change: {named:?}");
        assert_eq!(difference.cautions, Vec::<String>::new());
        assert_eq!(difference.next.as_deref(), Some("heaptrack -p 7"));
    }

    #[test]
    fn a_fall_names_what_fell_and_no_change_is_called_that() {
        let of = |before: u64, after: u64, held: [u64; 2]| {
            let with = |live, held: u64, at_s| {
                let mut snapshot = snapshot(at_s, live, 10);
                let process = &mut snapshot.processes[0];
                process.heap.as_mut().unwrap().trimmable = held * MB;
                let usage = process.memory.as_mut().unwrap().get_mut(&Kind::Brk).unwrap();
                usage.pss += held * MB;
                usage.rss += held * MB;
                snapshot
            };
            super::of(&with(before, held[0], 1.0), &with(after, held[1], 2.0)).sentence
        };
        let trimmed = of(50, 56, [231, 49]);
        assert_eq!(
            trimmed,
            "7 shrank from 281 to 105 MB, mostly in free pages that malloc_trim would return (\u{2212}182 MB)."
        );
        assert_eq!(of(50, 50, [55, 55]), "7 is unchanged at 105 MB.");
        assert_eq!(of(50, 60, [55, 46]), "7 is unchanged at 106 MB; the largest change is in live blocks (+10.0 MB).");
    }

    #[test]
    fn a_count_of_little_bytes_is_noise_and_threads_are_not() {
        let mut before = snapshot(1.0, 50, 10);
        let mut after = snapshot(2.0, 50, 10);
        let class = |count, bytes| Class { count, bytes };
        for (snapshot, more) in [(&mut before, 0), (&mut after, 7)] {
            let process = &mut snapshot.processes[0];
            process.threads = 3 + more;
            let heap = process.heap.as_mut().unwrap();
            heap.classes.insert(32, class(100 + more, 3200 + 32 * more));
            heap.classes.insert(4096, class(100 + 100 * more, 409_600 * (1 + more)));
        }
        let difference = of(&before, &after);
        let named: Vec<(&str, Unit)> =
            difference.changes.iter().map(|change| (change.what.as_str(), change.unit)).collect();
        assert_eq!(
            named,
            [
                ("live blocks up to 4096 B", Unit::Bytes),
                ("live blocks up to 4096 B", Unit::Count),
                ("threads", Unit::Count),
            ]
        );
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
