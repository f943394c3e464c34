//! The verdict from the findings: which kind, and one sentence. `next` has what to type then.

use super::findings::{LEAST_BYTES, megabytes, noun, whole};
use super::ledger::heaps;
use super::next::next;
use crate::facts::diagnosis::{Cause, Finding, Ledger, Verdict, VerdictKind};
use ebb_process::snapshot::{ENDED, Process, Runtime, Snapshot, TargetKind};

/// A group with this part of the whole is a reason.
const REASON: f64 = 0.2;
/// A group with this part is the reason.
const MOST: f64 = 0.5;
/// Memory that was not told apart may decide a verdict from this part of the whole on.
const IN_DOUBT: f64 = 0.1;
/// Less than this part of the whole is not worth a word.
const NOTED: f64 = 0.02;

/// Bytes of the groups of causes.
#[derive(Clone, Copy, Debug, Default)]
struct Groups {
    held: u64,
    live: u64,
    not_heap: u64,
    unknown: u64,
    /// Free pages that the allocator returns by itself in a moment.
    returning: u64,
}

/// Concludes.
pub fn verdict(snapshot: &Snapshot, ledger: &Ledger, findings: &[Finding]) -> Verdict {
    let whole = whole(snapshot, ledger);
    let groups = groups(snapshot, findings);
    let reaches = |bytes: u64, part: f64| bytes >= LEAST_BYTES && bytes as f64 >= part * whole as f64;
    let held = reaches(groups.held, REASON);
    let not_heap = reaches(groups.not_heap, MOST) || (held && reaches(groups.not_heap, REASON));
    let kind = if snapshot.processes.is_empty() {
        VerdictKind::NotEnoughEvidence
    } else if held && not_heap {
        VerdictKind::Mixed
    } else if held {
        VerdictKind::Retention
    } else if not_heap {
        VerdictKind::NotHeap
    } else if reaches(groups.held + groups.unknown, REASON) && reaches(groups.unknown, IN_DOUBT) {
        // It may be retention.
        VerdictKind::NotEnoughEvidence
    } else {
        VerdictKind::InUse
    };
    let main = main_cause(kind, snapshot, findings);
    Verdict {
        kind,
        main,
        sentence: sentence(kind, main, snapshot, findings, whole, groups),
        next: next(kind, main, snapshot),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    Held,
    Live,
    NotHeap,
    Unknown,
}

fn group(cause: Cause, snapshot: &Snapshot) -> Group {
    match cause {
        // Lazy pages are resident, and charged to the cgroup, until memory gets short.
        held if held.is_held() => Group::Held,
        Cause::Live | Cause::Objects | Cause::Metadata | Cause::Special => Group::Live,
        Cause::UnreadHeap => Group::Unknown,
        Cause::Anonymous => {
            // Object arenas that were not read come from neither malloc nor the program's own wish.
            let unread = |process: &Process| process.runtime == Some(Runtime::Cpython) && process.objects.is_none();
            if snapshot.processes.iter().any(unread) { Group::Unknown } else { Group::NotHeap }
        }
        // What lies in swap was anonymous memory of any kind.
        Cause::Swap => Group::Unknown,
        _ => Group::NotHeap,
    }
}

fn groups(snapshot: &Snapshot, findings: &[Finding]) -> Groups {
    let mut groups = Groups::default();
    for finding in findings {
        let bytes = finding.bytes.unwrap_or(0);
        match group(finding.cause, snapshot) {
            Group::Held => groups.held += bytes,
            Group::Live => groups.live += bytes,
            Group::NotHeap => groups.not_heap += bytes,
            Group::Unknown => groups.unknown += bytes,
        }
    }
    groups.returning = returning(snapshot).min(groups.held);
    groups.held -= groups.returning;
    groups
}

/// Free pages of allocators that return them without help: no remedy is needed.
fn returning(snapshot: &Snapshot) -> u64 {
    let returning = heaps(&snapshot.processes).filter(|heap| heap.returns_within_ms.is_some());
    returning.map(|heap| heap.trimmable).sum()
}

/// The largest cause of the group that the verdict is about.
fn main_cause(kind: VerdictKind, snapshot: &Snapshot, findings: &[Finding]) -> Option<Cause> {
    let wanted: &[Group] = match kind {
        VerdictKind::InUse | VerdictKind::LiveHeapGrows => &[Group::Live],
        VerdictKind::Retention => &[Group::Held],
        VerdictKind::NotHeap => &[Group::NotHeap],
        VerdictKind::Mixed => &[Group::Held, Group::NotHeap],
        VerdictKind::NotEnoughEvidence => &[Group::Unknown],
    };
    let bytes = |finding: &Finding| {
        let is_trimmable = finding.cause == Cause::Trimmable;
        let returning = if is_trimmable { returning(snapshot) } else { 0 };
        finding.bytes.unwrap_or(0).saturating_sub(returning)
    };
    let is_meant = |it: &&Finding| wanted.contains(&group(it.cause, snapshot)) && bytes(it) > 0;
    let largest = findings.iter().filter(is_meant).max_by_key(|finding| bytes(finding));
    largest.map(|finding| finding.cause)
}

fn sentence(
    kind: VerdictKind,
    main: Option<Cause>,
    snapshot: &Snapshot,
    findings: &[Finding],
    whole: u64,
    groups: Groups,
) -> String {
    let who = target_name(snapshot);
    let doubt = match groups.unknown as f64 >= NOTED * whole as f64 && groups.unknown > 0 {
        true => format!(" {} MB more could not be identified.", megabytes(groups.unknown)),
        false => String::new(),
    };
    let whole = megabytes(whole);
    let bytes_of = |cause: Cause| {
        let found = findings.iter().find(|finding| finding.cause == cause);
        megabytes(found.and_then(|finding| finding.bytes).unwrap_or(0))
    };
    let main_text = main.map(|cause| format!("{} MB {}", bytes_of(cause), noun(cause, snapshot)));
    let main_text = main_text.unwrap_or_default();
    match kind {
        VerdictKind::InUse if groups.returning >= LEAST_BYTES => format!(
            "Nothing to gain: of {whole} MB of {who}, {} MB are free pages that the allocator returns by itself{}.{doubt}",
            megabytes(groups.returning),
            within(snapshot)
        ),
        VerdictKind::InUse if groups.live < LEAST_BYTES => {
            format!("Nothing to gain: {who} uses {whole} MB, and holds little freed memory.{doubt}")
        }
        VerdictKind::InUse | VerdictKind::LiveHeapGrows => format!(
            "In use: {} of {whole} MB of {who} are live blocks, which no allocator lowers. To see whether they grow, look again later.{doubt}",
            megabytes(groups.live)
        ),
        VerdictKind::Retention => format!(
            "Retention: {} of {whole} MB of {who} are freed and held by the allocator, mostly {main_text}.{doubt}",
            megabytes(groups.held)
        ),
        VerdictKind::NotHeap => format!(
            "Not malloc's heap: {} of {whole} MB of {who}, mostly {main_text}{}.{doubt}",
            megabytes(groups.not_heap),
            if involves_allocator(snapshot, findings) { "" } else { ". Another allocator does not change that" }
        ),
        VerdictKind::Mixed => format!(
            "Mixed: of {whole} MB of {who}, {} MB are freed and held by the allocator, and {} MB are not malloc's heap; the largest part is {main_text}.{doubt}",
            megabytes(groups.held),
            megabytes(groups.not_heap)
        ),
        VerdictKind::NotEnoughEvidence if has_ended(snapshot) => {
            format!("Not enough evidence: {who} ended while it was read.")
        }
        VerdictKind::NotEnoughEvidence if snapshot.processes.is_empty() => {
            format!("Not enough evidence: no process of {who} could be read.")
        }
        VerdictKind::NotEnoughEvidence => format!(
            "Not enough evidence: {} of {whole} MB of {who} could not be identified as live or free, mostly {main_text}.",
            megabytes(groups.unknown)
        ),
    }
}

/// The time after which free pages are returned.
fn within(snapshot: &Snapshot) -> String {
    let longest = heaps(&snapshot.processes).filter_map(|heap| heap.returns_within_ms).max();
    longest.map_or_else(String::new, |ms| format!(" within {ms} ms"))
}

/// Whether a part of the anonymous memory is an allocator's, such as a library's own pool: then it is not said that no
/// allocator changes it.
fn involves_allocator(snapshot: &Snapshot, findings: &[Finding]) -> bool {
    let anonymous = findings.iter().find(|it| it.cause == Cause::Anonymous);
    let is_there = anonymous.is_some_and(|it| it.bytes.unwrap_or(0) >= LEAST_BYTES);
    is_there && snapshot.pool().is_some()
}

/// Whether nothing was read because all requested processes ended meanwhile.
fn has_ended(snapshot: &Snapshot) -> bool {
    snapshot.processes.is_empty() && snapshot.missing.iter().any(|it| it.what == ENDED)
}

pub(super) fn target_name(snapshot: &Snapshot) -> String {
    match (snapshot.target.kind, snapshot.processes.as_slice()) {
        (TargetKind::Cgroup, processes) => {
            format!("{} ({} processes)", snapshot.target.asked, processes.len())
        }
        (_, [only]) => format!("{} ({})", only.name, only.pid),
        (_, [first, rest @ ..]) => {
            format!("{} ({} and {} more)", first.name, first.pid, rest.len())
        }
        (_, []) => snapshot.target.asked.clone(),
    }
}
