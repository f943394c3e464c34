//! Verdicts of made-up snapshots, and what must keep silent.

use std::collections::BTreeMap;

use super::*;
use crate::facts::diagnosis::{Cause, Verdict, VerdictKind, Weight};
use ebb_process::example::snapshot;
use ebb_process::snapshot::*;

const MB: u64 = 1_000_000;

fn usage(mb: u64) -> Usage {
    Usage { mappings: 1, size: mb * MB, rss: mb * MB, pss: mb * MB, anon: mb * MB, ..Usage::default() }
}

/// A process of these kinds of mappings, in MB, on glibc.
fn process(kinds: &[(Kind, u64)], heap: Option<Heap>) -> Process {
    let memory: BTreeMap<Kind, Usage> = kinds.iter().map(|&(kind, mb)| (kind, usage(mb))).collect();
    Process {
        pid: 7,
        name: "service".into(),
        threads: 1,
        memory: Some(memory),
        allocator: Allocator { name: Some("glibc".into()), file: None },
        heap,
        status: Status { swap: Some(0), ..Status::default() },
        ..Process::default()
    }
}

fn heap(live: u64, trimmable: u64, tops: u64, pinned: u64) -> Heap {
    Heap {
        reader: "glibc".into(),
        resident: (live + trimmable + tops + pinned) * MB,
        live: live * MB,
        trimmable: trimmable * MB,
        tops: tops * MB,
        pinned: pinned * MB,
        ..Heap::default()
    }
}

fn judged(process: Process) -> (VerdictKind, Option<Cause>) {
    let diagnosis = of(snapshot(vec![process]));
    adds_up(&diagnosis);
    (diagnosis.verdict.kind, diagnosis.verdict.main)
}

fn adds_up(diagnosis: &Diagnosis) {
    let lines: u64 = diagnosis.ledger.lines.iter().map(|line| line.bytes).sum();
    assert_eq!(lines as i64 + diagnosis.ledger.remainder, diagnosis.ledger.total as i64);
    assert!(!diagnosis.verdict.sentence.contains("leak"), "one look never says it");
}

/// glibc's heap of live, trimmable, top and pinned MB, next to other mappings.
#[test]
fn the_largest_part_decides_the_verdict() {
    use VerdictKind::{InUse, Mixed, NotHeap, Retention};
    for (name, parts, others, kind, main) in [
        ("trimmable", [20, 300, 10, 5], (Kind::File, 3), Retention, Some(Cause::Trimmable)),
        ("tops", [20, 10, 200, 5], (Kind::File, 3), Retention, Some(Cause::Tops)),
        ("pinned", [50, 0, 0, 100], (Kind::File, 3), Retention, Some(Cause::Pinned)),
        ("a live peak", [300, 2, 1, 7], (Kind::File, 4), InUse, Some(Cause::Live)),
        ("3 MB are not worth a word", [1, 3, 0, 0], (Kind::File, 4), InUse, None),
        ("less than 16 MB", [20, 15, 0, 0], (Kind::File, 0), InUse, None),
        ("less than a fifth", [400, 90, 0, 0], (Kind::File, 0), InUse, None),
        ("shared memory", [9, 1, 0, 0], (Kind::Shared, 200), NotHeap, Some(Cause::SharedMemory)),
        ("stacks", [9, 1, 0, 0], (Kind::Stack, 200), NotHeap, Some(Cause::Stacks)),
        ("files", [9, 1, 0, 0], (Kind::File, 200), NotHeap, Some(Cause::MappedFiles)),
        ("data", [9, 1, 0, 0], (Kind::Data, 200), NotHeap, Some(Cause::Data)),
        ("own mappings", [9, 1, 0, 0], (Kind::Anonymous, 200), NotHeap, Some(Cause::Anonymous)),
        ("both", [10, 100, 0, 0], (Kind::Shared, 100), Mixed, None),
    ] {
        let [live, trimmable, tops, pinned] = parts;
        let heap = heap(live, trimmable, tops, pinned);
        let diagnosis = of(snapshot(vec![process(&[(Kind::Brk, parts.iter().sum()), others], Some(heap))]));
        adds_up(&diagnosis);
        assert_eq!(diagnosis.verdict.kind, kind, "{name}");
        assert!(main.is_none() || diagnosis.verdict.main == main, "{name}");
        // A trim is advised where it helps, and a trial where it does not reach.
        let next = diagnosis.verdict.next.unwrap_or_default();
        let is_trim = next.starts_with("ebb trim 7");
        assert_eq!(is_trim, name == "trimmable", "{name}: {next}");
        assert!(kind != Retention || is_trim || next.starts_with("ebb compare"), "{name}: {next}");
    }
}

#[test]
fn a_heap_that_was_not_read_decides_nothing() {
    let unread = process(&[(Kind::Brk, 10), (Kind::Anonymous, 300)], None);
    assert_eq!(judged(unread.clone()), (VerdictKind::NotEnoughEvidence, Some(Cause::UnreadHeap)));
    let diagnosis = of(snapshot(vec![unread]));
    let trimmable = diagnosis.findings.iter().find(|finding| finding.cause == Cause::Trimmable);
    assert_eq!(trimmable.unwrap().weight, Weight::Unknown, "not ruled out, not known");
}

#[test]
fn a_runtimes_own_heap_is_told_apart() {
    let mut node = process(&[(Kind::Brk, 10), (Kind::Anonymous, 300)], Some(heap(10, 0, 0, 0)));
    node.runtime = Some(Runtime::V8);
    assert_eq!(judged(node.clone()), (VerdictKind::NotHeap, Some(Cause::Anonymous)));
    assert!(of(snapshot(vec![node.clone()])).verdict.sentence.contains("V8's own heap"));
    node.runtime = Some(Runtime::Jvm);
    for (used, next) in [(50, "jcmd 7 GC.run"), (290, "ebb why --watch")] {
        let (reader, committed, used) = ("Java 17".to_owned(), 400_000_000, used * 1_000_000);
        node.managed = Some(Managed { reader, committed, used });
        let verdict = of(snapshot(vec![node.clone()])).verdict;
        assert!(verdict.next.as_ref().is_some_and(|it| it.starts_with(next)), "{verdict:?}");
    }
    node.runtime = Some(Runtime::V8);
    let verdict = of(snapshot(vec![node.clone()])).verdict;
    assert!(verdict.next.is_some_and(|it| it.starts_with("node inspect -p 7")));
    assert!(verdict.sentence.contains("400 MB committed, 290 MB in objects"), "{}", verdict.sentence);
    node.runtime = Some(Runtime::Cpython);
    assert_eq!(judged(node.clone()).0, VerdictKind::NotEnoughEvidence, "arenas may be free inside");
    // What a preloaded allocator maps looks like a runtime's own heap.
    (node.runtime, node.heap) = (Some(Runtime::V8), None);
    assert_eq!(judged(node.clone()).0, VerdictKind::NotHeap);
    node.allocator.name = Some(ebb_allocators::Allocator::Mimalloc.to_string());
    assert_eq!(judged(node), (VerdictKind::NotEnoughEvidence, Some(Cause::UnreadHeap)));
}

#[test]
fn closed_mappings_leave_the_kernels_sums() {
    let closed = Process {
        memory: None,
        heap: None,
        status: Status {
            rss: Some(300 * MB),
            anon: Some(280 * MB),
            file: Some(20 * MB),
            shared: Some(0),
            swap: Some(0),
            ..Status::default()
        },
        ..process(&[], None)
    };
    let diagnosis = of(snapshot(vec![closed]));
    adds_up(&diagnosis);
    assert_eq!(diagnosis.verdict.kind, VerdictKind::NotEnoughEvidence);
    assert!(!diagnosis.ledger.proportional);
}

#[test]
fn pages_shared_by_workers_are_scaled_to_their_share() {
    let mut worker = process(&[(Kind::Brk, 100)], Some(heap(60, 40, 0, 0)));
    let memory = worker.memory.as_mut().unwrap();
    memory.get_mut(&Kind::Brk).unwrap().pss = 50 * MB;
    let diagnosis = of(snapshot(vec![worker.clone(), Process { pid: 8, ..worker }]));
    adds_up(&diagnosis);
    assert_eq!(diagnosis.ledger.total, 100 * MB);
    assert_eq!(diagnosis.ledger.bytes(Cause::Trimmable), 40 * MB);
    assert_eq!(diagnosis.ledger.remainder, 0);
}

fn in_cgroup(parts: CgroupParts, usage: u64, pids: Vec<i32>) -> Diagnosis {
    let service = process(&[(Kind::Brk, 30), (Kind::File, 5)], Some(heap(28, 2, 0, 0)));
    let cgroup = Cgroup {
        version: 2,
        path: "/service".into(),
        usage: Some(usage),
        parts: CgroupParts { anon: Some(31 * MB), ..parts },
        pids,
        others_anon: Some(0),
        ..Cgroup::default()
    };
    of(Snapshot { cgroup: Some(cgroup), ..snapshot(vec![service]) })
}

#[test]
fn what_no_process_maps_counts_where_the_cgroup_is_the_targets_own() {
    let parts = |file: u64, mapped: u64, shared: u64, inactive_file: u64| CgroupParts {
        file: Some(file * MB),
        mapped: Some(mapped * MB),
        shared: Some(shared * MB),
        inactive_file: Some(inactive_file * MB),
        ..CgroupParts::default()
    };
    let cache = parts(400, 5, 0, 390);
    let own = in_cgroup(cache, 440 * MB, vec![7]);
    let Verdict { kind, main, .. } = own.verdict;
    assert_eq!((kind, main), (VerdictKind::NotHeap, Some(Cause::PageCache)));
    let bridge = own.bridge.unwrap();
    assert_eq!(bridge.working_set, Some(50 * MB));
    let sum = bridge.target_anon as i64 + bridge.others_anon as i64 + bridge.remainder;
    assert_eq!(sum, bridge.cgroup_anon as i64);
    let shared = in_cgroup(cache, 440 * MB, vec![7, 99]).verdict;
    assert_eq!(shared.kind, VerdictKind::InUse, "the cache may be the other's");
    let tmpfs = in_cgroup(parts(300, 0, 290, 0), 340 * MB, vec![7]).verdict;
    assert_eq!((tmpfs.kind, tmpfs.main), (VerdictKind::NotHeap, Some(Cause::Tmpfs)));
}

#[test]
fn nothing_read_is_not_enough() {
    assert_eq!(of(snapshot(Vec::new())).verdict.kind, VerdictKind::NotEnoughEvidence);
}

/// Whether a verdict says that no allocator has a part in it.
fn is_sure_of_no_allocator(diagnosis: &Diagnosis) -> bool {
    diagnosis.verdict.sentence.contains("Another allocator does not change that")
}

/// Every way in which a look may end early: the report names the memory in doubt, and no verdict rests on it.
#[test]
fn what_was_not_read_is_never_told_as_known() {
    let beside = || [(Kind::Brk, 20), (Kind::Anonymous, 300)];
    let base = || process(&beside(), Some(heap(18, 2, 0, 0)));
    let sure = of(snapshot(vec![base()]));
    assert_eq!(sure.verdict.kind, VerdictKind::NotHeap);
    assert!(is_sure_of_no_allocator(&sure), "nothing is in doubt");
    let with = |change: &dyn Fn(&mut Heap)| {
        let mut process = base();
        change(process.heap.as_mut().unwrap());
        process
    };
    let hidden = |name: Option<&str>| Process {
        hidden: vec![Hidden {
            name: name.map(str::to_owned),
            file: "/usr/lib/engine.so".into(),
            why: "ebb has no reader for it".into(),
        }],
        ..base()
    };
    let cases = [
        ("large blocks that were not found", with(&|heap| heap.missing = 300 * MB)),
        ("more than there is", with(&|heap| heap.missing = u64::MAX)),
        (
            "heaps that changed, are in swap or were out of time",
            with(&|heap| {
                heap.resident += 150 * MB;
                heap.unread = 150 * MB;
                heap.missing = 150 * MB;
            }),
        ),
        ("an allocator inside a library", hidden(Some("an rpmalloc of its own"))),
        ("a library that was not searched", hidden(None)),
        ("a heap that contradicts itself", Process { heap: None, ..base() }),
        ("object arenas that were not read", Process { runtime: Some(Runtime::Cpython), ..base() }),
        (
            "mappings that are closed",
            Process {
                memory: None,
                heap: None,
                status: Status { rss: Some(320 * MB), anon: Some(318 * MB), ..Status::default() },
                ..base()
            },
        ),
    ];
    for (doubt, process) in cases {
        let diagnosis = of(snapshot(vec![process]));
        adds_up(&diagnosis);
        let verdict = &diagnosis.verdict;
        assert_eq!(verdict.kind, VerdictKind::NotEnoughEvidence, "{doubt}: {}", verdict.sentence);
        assert!(!is_sure_of_no_allocator(&diagnosis), "{doubt}");
    }
}

#[test]
fn small_blocks_that_may_be_free_do_not_count_as_live() {
    // 100 MB of small blocks, whose lists were not read to their end.
    let unsure = Heap { resident: 200 * MB, unread: 100 * MB, ..heap(100, 0, 0, 0) };
    let diagnosis = of(snapshot(vec![process(&[(Kind::Brk, 200)], Some(unsure))]));
    adds_up(&diagnosis);
    assert_eq!(diagnosis.verdict.kind, VerdictKind::NotEnoughEvidence);
}

#[test]
fn doubt_that_could_not_change_the_verdict_is_a_sentence_beside_it() {
    let unread = |live: u64, trimmable: u64, unread: u64| {
        let heap =
            Heap { resident: (live + trimmable + unread) * MB, unread: unread * MB, ..heap(live, trimmable, 0, 0) };
        let brk = heap.resident / MB;
        of(snapshot(vec![process(&[(Kind::Brk, brk)], Some(heap))])).verdict
    };
    let held = unread(100, 100, 20);
    assert_eq!(held.kind, VerdictKind::Retention);
    assert!(held.sentence.ends_with("20.0 MB more could not be identified."), "{held:?}");
    let live = unread(200, 0, 10);
    assert_eq!(live.kind, VerdictKind::InUse);
    assert!(live.sentence.ends_with("10.0 MB more could not be identified."), "{live:?}");
    assert!(!unread(200, 0, 1).sentence.contains("identified"));
}

#[test]
fn a_part_that_is_missing_is_moved_and_no_more() {
    let mut some = process(&[(Kind::Brk, 20), (Kind::Anonymous, 300)], Some(heap(18, 2, 0, 0)));
    some.heap.as_mut().unwrap().missing = 30 * MB;
    let diagnosis = of(snapshot(vec![some]));
    adds_up(&diagnosis);
    assert_eq!(diagnosis.ledger.bytes(Cause::UnreadHeap), 30 * MB);
    assert_eq!(diagnosis.ledger.bytes(Cause::Anonymous), 270 * MB);
    assert_eq!(diagnosis.verdict.kind, VerdictKind::NotHeap);
    assert!(diagnosis.verdict.sentence.contains("30.0 MB more could not be identified"));
}

/// A process with Arrow's pool, `anonymous` MB next to its break heap.
fn with_arrow(anonymous: u64, heap: Heap) -> Process {
    let kinds = [(Kind::Brk, 10), (Kind::Anonymous, anonymous)];
    Process { pool: Some(Pool::Arrow), ..process(&kinds, Some(heap)) }
}

#[test]
fn a_librarys_pool_is_named_with_what_opens_it() {
    let runtime = Some(Runtime::Cpython);
    let python = Process { runtime, ..with_arrow(300, heap(10, 0, 0, 0)) };
    let diagnosis = of(snapshot(vec![python]));
    let finding = diagnosis.findings.iter().find(|finding| finding.cause == Cause::Anonymous);
    let remedy = finding.unwrap().remedy.as_deref().unwrap_or_default();
    assert!(remedy.contains("ARROW_DEFAULT_MEMORY_POOL=system"), "{remedy}");
    let noun = findings::noun(Cause::Anonymous, &diagnosis.snapshot);
    assert_eq!(noun, "Arrow's own pool, CPython's own heap, or mapped by the program itself");
    // It is an allocator, with and without a runtime.
    let diagnosis = of(snapshot(vec![with_arrow(300, heap(10, 0, 0, 0))]));
    assert_eq!(diagnosis.verdict.kind, VerdictKind::NotHeap);
    assert!(!is_sure_of_no_allocator(&diagnosis), "{}", diagnosis.verdict.sentence);
}

#[test]
fn a_librarys_pool_that_is_read_gets_the_call_that_empties_it() {
    let both = Heap {
        reader: "glibc 2.36 and mimalloc 3 in libarrow.so.2600".into(),
        kept: 200 * MB,
        resident: 210 * MB,
        ..heap(10, 0, 0, 0)
    };
    let process =
        Process { runtime: Some(Runtime::Cpython), objects: Some(Objects::default()), ..with_arrow(220, both) };
    let diagnosis = of(snapshot(vec![process]));
    adds_up(&diagnosis);
    let verdict = &diagnosis.verdict;
    assert_eq!((verdict.kind, verdict.main), (VerdictKind::Retention, Some(Cause::Kept)));
    let next = verdict.next.as_deref().unwrap_or_default();
    for words in ["release_unused()", "ARROW_DEFAULT_MEMORY_POOL=system"] {
        assert!(next.contains(words) && !next.contains("ebb compare"), "{next}");
    }
    let noun = findings::noun(Cause::Anonymous, &diagnosis.snapshot);
    assert!(!noun.contains("Arrow"), "its memory is in the heap: {noun}");
}

#[test]
fn a_librarys_pool_that_is_not_read_is_not_told_apart() {
    let why = "ebb has no reader for it".to_owned();
    let (name, file) = (Some(Pool::Arrow.to_string()), "/usr/lib/libarrow.so.2600".into());
    let hidden = vec![Hidden { name, file, why: why.clone() }];
    let process = Process { hidden, ..with_arrow(300, heap(10, 0, 0, 0)) };
    let remedy = Some(Pool::Arrow.remedy().into());
    let missing = vec![Missing { pid: Some(1), what: "an allocator".into(), why, remedy }];
    let verdict = of(Snapshot { missing, ..snapshot(vec![process]) }).verdict;
    assert_eq!(verdict.kind, VerdictKind::NotEnoughEvidence);
    let next = verdict.next.unwrap_or_default();
    assert!(next.contains("ARROW_DEFAULT_MEMORY_POOL=system"), "{next}");
}

#[test]
fn what_is_locked_is_unlocked_and_neither_trimmed_nor_compared() {
    let locked = Heap { resident: 320 * MB, locked: 300 * MB, ..heap(20, 0, 0, 0) };
    let diagnosis = of(snapshot(vec![process(&[(Kind::Brk, 320)], Some(locked))]));
    adds_up(&diagnosis);
    let verdict = diagnosis.verdict;
    assert_eq!((verdict.kind, verdict.main), (VerdictKind::Retention, Some(Cause::Locked)));
    let next = verdict.next.unwrap_or_default();
    assert!(next.contains("munlock") && !next.contains("ebb "), "{next}");
}

#[test]
fn pages_that_go_back_by_themselves_are_no_retention() {
    let mut ours = heap(20, 300, 0, 0);
    ours.returns_within_ms = Some(1000);
    let diagnosis = of(snapshot(vec![process(&[(Kind::Brk, 320)], Some(ours.clone()))]));
    adds_up(&diagnosis);
    assert_eq!(diagnosis.verdict.kind, VerdictKind::InUse);
    assert!(diagnosis.verdict.sentence.contains("by itself within 1000 ms"), "{}", diagnosis.verdict.sentence);
    // What stays is retention all the same, by its own cause.
    ours.resident += 200 * MB;
    ours.pinned = 200 * MB;
    let process = process(&[(Kind::Brk, 520)], Some(ours));
    assert_eq!(judged(process), (VerdictKind::Retention, Some(Cause::Pinned)));
}

#[test]
fn one_that_ended_is_said_to_have_ended() {
    let mut ended = snapshot(Vec::new());
    ended.missing.push(Missing {
        pid: Some(7),
        what: ENDED.into(),
        why: "it ended while it was read".into(),
        remedy: None,
    });
    let verdict = of(ended).verdict;
    assert_eq!(verdict.kind, VerdictKind::NotEnoughEvidence);
    assert!(verdict.sentence.contains("ended while it was read"), "{}", verdict.sentence);
}
