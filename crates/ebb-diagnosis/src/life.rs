//! The phases of a program's life, from snapshots at marked points: what each phase left, live and held apart, and
//! which kinds of memory explain it or are ruled out.

use super::difference::{self, LEAST_CHANGE};
use super::findings::megabytes;
use super::ledger;
use crate::facts::diagnosis::Cause;
use crate::facts::life::{Left, Life, Phase, Suspect};
use ebb_process::snapshot::{Process, Python, Runtime, Snapshot};

/// A kind of memory with a smaller part of what a phase left does not explain it.
const LEAST_PART: f64 = 0.05;
/// A block from this size on is large.
const LARGE: u64 = 1 << 20;

/// What each phase left. The snapshots are in the order of the points that they mark; there is at least one.
pub fn of(points: &[(String, Snapshot)]) -> Life {
    let mut cautions: Vec<String> = Vec::new();
    let mut phases: Vec<Phase> = Vec::new();
    let first_s = points.first().map_or(0.0, |(_, first)| first.at_s);
    for (at, (label, snapshot)) in points.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|at| points.get(at)).map(|(_, before)| before);
        for caution in before.iter().flat_map(|before| difference::cautions(before, snapshot)) {
            let caution = format!("{label}: {caution}");
            cautions.push(caution);
        }
        phases.push(Phase {
            label: label.clone(),
            at_s: (snapshot.at_s >= first_s).then_some(snapshot.at_s - first_s),
            total: ledger::of(&snapshot.processes).total,
            left: before.map(|before| left(&Figures::of(before), &Figures::of(snapshot))),
        });
    }
    Life { sentence: sentence(points, &phases), phases, cautions }
}

fn sentence(points: &[(String, Snapshot)], phases: &[Phase]) -> String {
    let who = points.last().map_or_else(String::new, |(_, last)| last.target.asked.clone());
    let (Some(first), Some(last)) = (phases.first(), phases.last()) else {
        return format!("{who}: no phases.");
    };
    let from_to = format!("{} to {} MB", megabytes(first.total), megabytes(last.total));
    let left = |phase: &&Phase| phase.left.as_ref().map_or(0, |left| left.total);
    let most = phases.iter().max_by_key(left).filter(|phase| left(phase) >= LEAST_CHANGE as i64);
    let most = most.map_or_else(String::new, |phase| {
        format!("; {} left the most (+{} MB)", phase.label, megabytes(left(&phase) as u64))
    });
    format!("{who} went from {from_to} in {} phases{most}.", phases.len() - 1)
}

struct Figures {
    total: u64,
    live: Option<u64>,
    held: Option<u64>,
    suspects: Vec<Known>,
}

/// A kind of memory at one point.
struct Known {
    what: &'static str,
    bytes: Option<u64>,
    count: Option<u64>,
    counted: &'static str,
}

impl Figures {
    fn of(snapshot: &Snapshot) -> Self {
        let ledger = ledger::of(&snapshot.processes);
        let has_heaps = ledger::has_all_heaps(snapshot);
        let has_mappings = snapshot.processes.iter().all(|process| process.memory.is_some());
        let of = |cause| has_mappings.then(|| ledger.bytes(cause));
        let is_python = |it: &&Process| it.runtime == Some(Runtime::Cpython);
        let mut pythons = snapshot.processes.iter().filter(is_python).peekable();
        let has_pythons = pythons.peek().is_some();
        let has_objects = pythons.all(|process| process.objects.is_some());
        let large = large(snapshot);
        let mut suspects = vec![
            Known {
                what: "blocks of 1 MiB or more",
                bytes: large.map(|(_, bytes)| bytes),
                count: large.map(|(count, _)| count),
                counted: "blocks",
            },
            Known {
                what: "stacks",
                bytes: of(Cause::Stacks),
                count: Some(snapshot.processes.iter().map(|process| process.threads).sum()),
                counted: "threads",
            },
            Known { what: "mapped files", bytes: of(Cause::MappedFiles), count: None, counted: "" },
            Known { what: "shared memory", bytes: of(Cause::SharedMemory), count: None, counted: "" },
        ];
        if has_pythons {
            let bytes = has_objects.then(|| ledger.bytes(Cause::Objects));
            let of_types = |python: &Python| python.types.iter().map(|of| of.count).sum::<u64>();
            let counts = snapshot.processes.iter().filter(is_python);
            let count = counts.map(|it| it.python.as_ref().map(of_types)).sum();
            let what = "objects of the interpreter";
            suspects.insert(0, Known { what, bytes, count, counted: "objects" });
        }
        Self {
            total: ledger.total,
            live: has_heaps.then(|| ledger.bytes(Cause::Live) + ledger.bytes(Cause::Objects)),
            held: has_heaps.then(|| ledger.held()),
            suspects,
        }
    }
}

/// Live large blocks: their number and bytes, where the sizes of blocks are known in every process.
fn large(snapshot: &Snapshot) -> Option<(u64, u64)> {
    let of = |process: &Process| {
        let buffers = process.python.as_ref().and_then(|python| python.buffers.as_ref());
        if let Some(buffers) = buffers {
            return Some(buffers.iter().map(|of| (of.count, of.bytes)).fold((0, 0), sum));
        }
        let classes = &process.heap.as_ref()?.classes;
        let large = classes.range(LARGE..).map(|(_, class)| (class.count, class.bytes));
        (!classes.is_empty()).then(|| large.fold((0, 0), sum))
    };
    snapshot.processes.iter().try_fold((0, 0), |all, process| Some(sum(all, of(process)?)))
}

fn sum(left: (u64, u64), right: (u64, u64)) -> (u64, u64) {
    (left.0 + right.0, left.1 + right.1)
}

fn left(before: &Figures, after: &Figures) -> Left {
    let change = |before: Option<u64>, after: Option<u64>| Some(after? as i64 - before? as i64);
    let total = after.total as i64 - before.total as i64;
    let least = (LEAST_CHANGE as f64).max(LEAST_PART * total.unsigned_abs() as f64);
    let suspect = |known: &Known| {
        let earlier = before.suspects.iter().find(|it| it.what == known.what);
        let bytes = change(earlier.and_then(|it| it.bytes), known.bytes);
        let count = change(earlier.and_then(|it| it.count), known.count);
        Suspect {
            what: known.what.to_owned(),
            bytes,
            count,
            counted: count.map(|_| known.counted.to_owned()),
            ruled_out: bytes.is_some_and(|bytes| (bytes.unsigned_abs() as f64) < least),
        }
    };
    Left {
        total,
        live: change(before.live, after.live),
        held: change(before.held, after.held),
        suspects: after.suspects.iter().map(suspect).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use ebb_process::example;
    use ebb_process::snapshot::{Class, Heap, Kind, Objects, Usage};

    const MB: u64 = 1_000_000;

    /// A CPython at second `at_s` with live, freed and held, of the live in blocks of 2 MiB, and in stacks; in MB.
    fn point(at_s: f64, [live, held, large, stacks]: [u64; 4]) -> Snapshot {
        let usage = |mb: u64| Usage { rss: mb * MB, pss: mb * MB, ..Usage::default() };
        let classes = [(64, live - large), (2 << 20, large)];
        let classes = classes.map(|(size, mb)| (size, Class { count: mb, bytes: mb * MB }));
        let process = Process {
            pid: 7,
            runtime: Some(Runtime::Cpython),
            threads: 1 + stacks,
            memory: Some(BTreeMap::from([(Kind::Brk, usage(live + held + 5)), (Kind::Stack, usage(stacks))])),
            heap: Some(Heap {
                live: live * MB,
                trimmable: held * MB,
                resident: (live + held) * MB,
                classes: classes.into(),
                ..Heap::default()
            }),
            objects: Some(Objects { resident: 5 * MB, live: 5 * MB, ..Objects::default() }),
            ..Process::default()
        };
        Snapshot { at_s, ..example::snapshot(vec![process]) }
    }

    fn phases(points: &[[u64; 4]]) -> Life {
        let label = |at: usize| format!("p{at}");
        let each = points.iter().enumerate();
        of(&each.map(|(at, mb)| (label(at), point(at as f64, *mb))).collect::<Vec<_>>())
    }

    #[test]
    fn each_phase_has_what_it_left_and_what_that_is_not() {
        let life = phases(&[[10, 0, 0, 1], [60, 0, 50, 1], [60, 90, 50, 1], [60, 90, 50, 21]]);
        assert_eq!(life.sentence, "7 went from 16.0 to 176 MB in 3 phases; p2 left the most (+90.0 MB).");
        assert_eq!(life.phases[0].left, None);
        let mb = |bytes: i64| bytes / 1_000_000;
        for (at, total, live, held, part) in
            [(1, 50, 50, 0, "blocks of 1 MiB or more"), (2, 90, 0, 90, ""), (3, 20, 0, 0, "stacks")]
        {
            let left = life.phases[at].left.as_ref().unwrap();
            let figures = (mb(left.total), left.live.map(mb), left.held.map(mb));
            assert_eq!(figures, (total, Some(live), Some(held)), "{at}");
            let parts: Vec<&str> = left.suspects.iter().filter(|it| !it.ruled_out).map(|it| it.what.as_str()).collect();
            assert_eq!(parts.join(" "), part, "{at}");
        }
    }

    #[test]
    fn what_is_not_known_is_not_ruled_out() {
        let (before, mut after) = (point(1.0, [10, 0, 0, 1]), point(0.5, [10, 80, 0, 1]));
        let process = &mut after.processes[0];
        (process.objects, process.heap.as_mut().unwrap().classes) = (None, BTreeMap::new());
        let life = of(&[("a".into(), before), ("b".into(), after)]);
        let left = life.phases[1].left.as_ref().unwrap();
        let unknown: Vec<(&str, Option<i64>)> =
            left.suspects.iter().filter(|it| !it.ruled_out).map(|it| (it.what.as_str(), it.bytes)).collect();
        assert_eq!(unknown, [("objects of the interpreter", None), ("blocks of 1 MiB or more", None)]);
        assert_eq!((life.phases[1].at_s, life.cautions.len()), (None, 1), "{:?}", life.cautions);
    }
}
