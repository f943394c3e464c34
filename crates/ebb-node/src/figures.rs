//! What looks found, in the figures that a table or a series has: of one process, or summed over those of a cgroup.
//!
//! Sums are those of the ledger, so a page that workers share counts once. Used by `node`.

use std::time::Duration;

use ebb_diagnosis::facts::diagnosis::{Cause, Ledger, Verdict};
use ebb_process::snapshot::{Cgroup, FORMAT, Missing, Process, Snapshot, Target, TargetKind};

/// So many lines of what could not be read are kept of a process.
const MOST_MISSING: usize = 8;

/// What is kept of the last look at a process: a few kilobytes.
#[derive(Clone, Debug)]
pub struct Seen {
    /// When it was, by the clock of [`crate::Clock`].
    pub at: Duration,
    /// Its facts, without lists that grow with the heap.
    pub process: Process,
    /// What could not be read.
    pub missing: Vec<Missing>,
    /// Whether the allocator that it was started with serves its `malloc`.
    pub in_charge: Option<bool>,
}

impl Seen {
    /// Keeps what is bounded.
    pub(crate) fn new(at: Duration, mut process: Process, mut missing: Vec<Missing>, in_charge: Option<bool>) -> Self {
        if let Some(heap) = &mut process.heap {
            heap.classes.clear();
            heap.large = Vec::new();
        }
        process.python = None;
        process.profile = None;
        missing.truncate(MOST_MISSING);
        Self { at, process, missing, in_charge }
    }

    /// Resident memory at that time.
    pub fn rss(&self) -> u64 {
        self.process.status.rss.unwrap_or(0)
    }

    /// Live bytes of its heap.
    pub(crate) fn live(&self) -> Option<u64> {
        self.process.heap.as_ref().map(|heap| heap.live)
    }
}

/// The figures of a process or of a cgroup, as of its last looks. Bytes; `None` where they are not known.
#[derive(Clone, Debug)]
pub struct Figures {
    /// When the oldest look in it was.
    pub at: Duration,
    /// Where the memory is.
    pub ledger: Ledger,
    /// Live blocks.
    pub live: Option<u64>,
    /// Free pages that the allocator can return at once: what a trim brings.
    pub returnable: Option<u64>,
    /// Free bytes on pages with live blocks.
    pub pinned: Option<u64>,
    /// Freed bytes in threads' caches and in arenas' ends, which a trim leaves.
    pub cached: Option<u64>,
    /// The heap of a language runtime.
    pub interpreter: Option<u64>,
    /// Free memory that huge pages keep resident, at most.
    pub huge_excess: Option<u64>,
    /// What serves `malloc`; of a cgroup, in its largest process.
    pub allocator: Option<String>,
    /// Its version.
    pub allocator_version: Option<String>,
    /// Whether it is the allocator that the process was started with.
    pub in_charge: Option<bool>,
    /// The verdict of `ebb why`.
    pub verdict: Verdict,
    /// What could not be read.
    pub missing: Vec<Missing>,
}

impl Figures {
    /// Sums looks up; nothing of none.
    pub fn of(looks: &[&Seen], cgroup: Option<&Cgroup>) -> Option<Self> {
        let at = looks.iter().map(|seen| seen.at).min()?;
        let largest = looks.iter().max_by_key(|seen| seen.rss())?;
        let heaps = || looks.iter().map(|seen| seen.process.heap.as_ref());
        let has_heaps = heaps().all(|heap| heap.is_some());
        let huge = heaps().flatten().filter_map(|heap| heap.huge_pages).map(|huge| huge.free);
        let huge_excess = huge.reduce(|left, right| left + right);
        let objects = looks.iter().any(|seen| seen.process.objects.is_some());
        let runtime = looks.iter().any(|seen| seen.process.runtime.is_some());
        let allocator = largest.process.allocator.name.clone();
        let reader = largest.process.heap.as_ref().map(|heap| heap.reader.as_str());
        let allocator_version = version(reader.unwrap_or_default());
        let in_charge =
            if looks.iter().any(|seen| seen.in_charge == Some(false)) { Some(false) } else { largest.in_charge };
        let missing = looks.iter().flat_map(|seen| seen.missing.clone()).take(MOST_MISSING);
        let diagnosis = ebb_diagnosis::of(snapshot(looks, cgroup, missing.collect()));
        let ledger = diagnosis.ledger;
        let sum = |causes: &[Cause]| -> u64 { causes.iter().map(|it| ledger.bytes(*it)).sum() };
        let of_heap = |causes: &[Cause]| has_heaps.then(|| sum(causes));
        Some(Self {
            at,
            live: of_heap(&[Cause::Live]),
            returnable: of_heap(&[Cause::Trimmable, Cause::Kept, Cause::Lazy]),
            pinned: of_heap(&[Cause::Pinned]),
            cached: of_heap(&[Cause::Cached, Cause::Tops]),
            interpreter: if objects {
                Some(sum(&[Cause::Objects, Cause::FreeObjects]))
            } else {
                runtime.then(|| sum(&[Cause::Anonymous]))
            },
            huge_excess,
            allocator,
            allocator_version,
            in_charge,
            verdict: diagnosis.verdict,
            missing: diagnosis.snapshot.missing,
            ledger,
        })
    }
}

/// Of `glibc 2.36` the second word.
fn version(reader: &str) -> Option<String> {
    let is_version = |word: &&str| word.starts_with(|first: char| first.is_ascii_digit());
    reader.split_whitespace().find(is_version).map(str::to_owned)
}

fn snapshot(looks: &[&Seen], cgroup: Option<&Cgroup>, missing: Vec<Missing>) -> Snapshot {
    let asked = cgroup.map(|cgroup| cgroup.path.clone()).unwrap_or_default();
    Snapshot {
        format: FORMAT,
        ebb_version: String::new(),
        taken: String::new(),
        at_s: 0.0,
        label: None,
        target: Target { asked, kind: TargetKind::Cgroup },
        processes: looks.iter().map(|seen| seen.process.clone()).collect(),
        cgroup: cgroup.cloned(),
        missing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebb_process::snapshot::{Heap, Kind, Status, Usage};

    fn seen(rss: u64, heap: Option<Heap>) -> Seen {
        let usage = Usage { rss, pss: rss, anon: rss, mappings: 1, ..Usage::default() };
        let process = Process {
            status: Status { rss: Some(rss), anon: Some(rss), ..Status::default() },
            memory: Some([(Kind::Brk, usage)].into()),
            heap,
            ..Process::default()
        };
        Seen::new(Duration::from_secs(rss), process, Vec::new(), Some(true))
    }

    #[test]
    fn a_heap_that_was_not_read_makes_the_sum_unknown_and_not_smaller() {
        let heap =
            |live, kept| Heap { reader: "jemalloc 5.3.0".into(), resident: live + kept, live, kept, ..Heap::default() };
        let read = [seen(100, Some(heap(70, 30))), seen(50, Some(heap(50, 0)))];
        let sum = Figures::of(&[&read[0], &read[1]], None).unwrap();
        assert_eq!((sum.live, sum.returnable, sum.pinned), (Some(120), Some(30), Some(0)));
        assert_eq!(sum.allocator_version.as_deref(), Some("5.3.0"));
        assert_eq!((sum.at, sum.in_charge), (Duration::from_secs(50), Some(true)));
        let part = Figures::of(&[&read[0], &seen(10, None)], None).unwrap();
        assert_eq!((part.live, part.returnable, part.interpreter), (None, None, None));
        assert!(Figures::of(&[], None).is_none());
    }
}
