//! A diagnosis in at most ten lines: the verdict, the headroom, what is missing, where the memory is, whether a trim
//! helps, the processes, and the next step.
//!
//! Every line is broken at the width of the terminal, so the count holds for what a person sees.

use std::collections::BTreeMap;

use super::words::{capital, label, mb, wrap};
use ebb_diagnosis::facts::diagnosis::{Cause, Diagnosis, Finding, Verdict, VerdictKind};
use ebb_diagnosis::facts::trim::Reason;
use ebb_diagnosis::facts::workers::Pool;
use ebb_diagnosis::findings::{LEAST_BYTES, megabytes, whole};
use ebb_diagnosis::trim::{Limits, judge};
use ebb_diagnosis::workers::{self, Group};
use ebb_process::snapshot::{Cgroup, Missing, Snapshot};

/// A report has no more lines.
pub const MOST_LINES: usize = 10;
/// A part of the memory below this share is in "other".
const LEAST_SHARE: f64 = 0.05;
/// And one of fewer bytes.
const LEAST_PART: u64 = 1_000_000;
/// Parts of the memory, and groups of processes, in a line.
const MOST_PARTS: usize = 4;

/// Lines that belong together; those of the lowest rank go first where there are too many.
struct Section {
    rank: u8,
    lines: Vec<String>,
}

/// The report.
pub fn render(diagnosis: &Diagnosis, columns: usize) -> String {
    let snapshot = &diagnosis.snapshot;
    let (headline, rest) = split(&diagnosis.verdict.sentence);
    let headline = shortened(headline, columns);
    let cgroup = snapshot.cgroup.as_ref();
    let mut sections: Vec<Section> = [
        (9, Some(headline)),
        (9, cgroup.and_then(headroom)),
        (8, right(snapshot)),
        (4, rest),
        (5, not_read(snapshot)),
        (7, parts(diagnosis)),
        (6, trim(diagnosis)),
        (3, processes(diagnosis)),
    ]
    .into_iter()
    .filter_map(|(rank, text)| {
        let lines = wrap(&text?, columns, 2);
        Some(Section { rank, lines })
    })
    .collect();
    sections.push(Section { rank: 9, lines: next(&diagnosis.verdict, &diagnosis.findings, columns) });
    fit(&mut sections, columns);
    let lines = sections.into_iter().flat_map(|section| section.lines);
    lines.map(|line| line + "\n").collect()
}

/// Leaves out sections until the rest is short enough.
fn fit(sections: &mut Vec<Section>, columns: usize) {
    // A command is not broken by us, and by a terminal where it is too long.
    let height = |line: &String| line.chars().count().div_ceil(columns).max(1);
    let all = |sections: &[Section]| -> usize { sections.iter().flat_map(|it| &it.lines).map(height).sum() };
    while all(sections) > MOST_LINES {
        let lowest = sections.iter().map(|section| section.rank).min();
        let Some(at) = sections.iter().position(|it| Some(it.rank) == lowest) else {
            return;
        };
        if sections[at].rank == 9 {
            return;
        }
        sections.remove(at);
    }
}

/// The first clause of the verdict, and what it says beyond the figures that other lines have.
fn split(sentence: &str) -> (String, Option<String>) {
    const SAID_ELSEWHERE: [&str; 4] =
        ["mostly ", "the largest part is ", "To see whether they grow", "which no allocator lowers"];
    let ends = [", mostly ", ", which no allocator ", "; ", ". "];
    let Some(end) = ends.iter().filter_map(|mark| sentence.find(mark)).min() else {
        return (sentence.to_owned(), None);
    };
    let rest: Vec<String> = sentence[end + 2..]
        .split("; ")
        .flat_map(|clause| clause.split(". "))
        .filter(|clause| !SAID_ELSEWHERE.iter().any(|said| clause.starts_with(said)))
        .map(|clause| format!("{}.", capital(clause.trim_end_matches('.'))))
        .collect();
    let rest = (!rest.is_empty()).then(|| rest.join(" "));
    (format!("{}.", &sentence[..end]), rest)
}

/// A headline that is too long for a line in fewer words: the headroom is to be in the second.
fn shortened(mut headline: String, columns: usize) -> String {
    const WORDS: [(&str, &str); 5] = [
        (" are freed and held by the allocator, and ", " are held, "),
        (" are freed and held by the allocator", " are freed and held"),
        (" could not be identified as live or free", " are unidentified"),
        (", and holds little freed memory", ""),
        (" are not malloc's heap", " are no heap"),
    ];
    if headline.chars().count() > columns {
        for (long, short) in WORDS {
            headline = headline.replace(long, short);
        }
    }
    headline
}

/// How near the limit is.
fn headroom(cgroup: &Cgroup) -> Option<String> {
    let limit = cgroup.limit.filter(|&limit| limit > 0)?;
    let usage = cgroup.limit_usage.or(cgroup.usage)?;
    let mut text = format!(
        "At {} % of the limit: {} of {} MB, {} MB left",
        (u128::from(usage) * 100 / u128::from(limit)),
        megabytes(usage),
        megabytes(limit),
        megabytes(limit.saturating_sub(usage))
    );
    // An ancestor's figure has the files of others.
    let own = cgroup.limit_of.as_ref().is_none_or(|of| *of == cgroup.path);
    let files = cgroup.parts.inactive_file.filter(|_| own).unwrap_or(0);
    if files as f64 >= LEAST_SHARE * limit as f64 {
        text += &format!(", and {} MB of files that the kernel can drop", megabytes(files));
    }
    if !own && let Some(of) = &cgroup.limit_of {
        text += &format!(" (limit of {of})");
    }
    match cgroup.stress.oom_kills {
        None | Some(0) => {}
        Some(1) => text += "; 1 process was OOM-killed",
        Some(kills) => text += &format!("; {kills} processes were OOM-killed"),
    }
    Some(text + ".")
}

/// The right that is missing, with the number of processes that are closed without it.
fn right(snapshot: &Snapshot) -> Option<String> {
    let closed = |missing: &&Missing| missing.what == "mappings";
    let first = snapshot.missing.iter().find(closed)?;
    let count = snapshot.missing.iter().filter(closed).count();
    let all = snapshot.processes.len();
    let of = if count < all { format!(" ({count} of {all} processes)") } else { String::new() };
    Some(format!("{}{of}.", capital(&first.why)))
}

/// What else was not read: the first of each kind, with how many more there are.
fn not_read(snapshot: &Snapshot) -> Option<String> {
    let mut kinds: BTreeMap<&str, (usize, &Missing)> = BTreeMap::new();
    for missing in snapshot.missing.iter().filter(|it| it.what != "mappings") {
        kinds.entry(&missing.what).or_insert((0, missing)).0 += 1;
    }
    let each: Vec<String> = kinds
        .values()
        .map(|(count, first)| {
            let of = match (count, first.pid) {
                (1, Some(pid)) => format!(" of {pid}"),
                (1, None) => String::new(),
                (several, _) => format!(" of {several} processes"),
            };
            format!("{}{of}: {}", first.what, first.why)
        })
        .collect();
    (!each.is_empty()).then(|| format!("Not read: {}.", each.join("; ")))
}

/// The largest parts of the memory.
fn parts(diagnosis: &Diagnosis) -> Option<String> {
    let whole = whole(&diagnosis.snapshot, &diagnosis.ledger);
    let mut known: Vec<(u64, &Finding)> = diagnosis
        .findings
        .iter()
        .filter_map(|finding| Some((finding.bytes.filter(|&bytes| bytes > 0)?, finding)))
        .collect();
    known.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    let (first, _) = known.first()?;
    let share = (LEAST_SHARE * whole as f64) as u64;
    let least = share.max(LEAST_PART).min(*first);
    let shown = known.iter().take(MOST_PARTS).take_while(|(bytes, _)| *bytes >= least);
    let mut sum = 0;
    let mut words: Vec<String> = Vec::new();
    for (bytes, finding) in shown {
        sum += bytes;
        words.push(format!("{} MB {}", megabytes(*bytes), part(finding.cause)));
    }
    let other = whole.saturating_sub(sum);
    if other >= LEAST_PART {
        words.push(format!("{} MB other", megabytes(other)));
    }
    Some(format!("Memory: {}.", words.join(", ")))
}

fn part(cause: Cause) -> &'static str {
    match cause {
        Cause::Trimmable => "freed in whole pages",
        Cause::Pinned => "freed, on pages with live blocks (pinned)",
        Cause::Cached => "freed, in threads' caches",
        cause => label(cause),
    }
}

fn trim(diagnosis: &Diagnosis) -> Option<String> {
    const LIMITS: Limits = Limits { least_bytes: 0, most_pause_s: f64::INFINITY };
    let snapshot = &diagnosis.snapshot;
    let largest = snapshot.processes.iter().max_by_key(|process| {
        let heap = process.heap.as_ref().map_or(0, |heap| heap.resident);
        (heap, process.status.rss)
    })?;
    let text = match judge(largest, &snapshot.missing, None, &LIMITS) {
        (_, Some(left)) if matches!(left.reason, Reason::NoRight | Reason::NotRead) => {
            return Some("It is not known whether a trim helps.".to_owned());
        }
        (_, Some(left)) => left.why,
        (None, None) => return None,
        (Some(_), None) => {
            let bytes = diagnosis.ledger.bytes(Cause::Trimmable);
            let mb = megabytes(bytes);
            if bytes >= LEAST_BYTES {
                return Some(format!("Trim: malloc_trim would return {mb} MB."));
            }
            format!("malloc_trim would return {mb} MB")
        }
    };
    Some(format!("Trim does not help: {text}."))
}

/// Where there are several: similar ones together, a different one by its number; and how many workers fit.
fn processes(diagnosis: &Diagnosis) -> Option<String> {
    let snapshot = &diagnosis.snapshot;
    if snapshot.processes.len() < 2 {
        return None;
    }
    let pools = &diagnosis.workers;
    let groups = workers::groups(snapshot, pools);
    let mut words: Vec<String> = groups.iter().take(MOST_PARTS).map(|it| group(it, pools)).collect();
    let left: usize = groups.iter().skip(MOST_PARTS).map(|it| it.pids.len()).sum();
    if left > 0 {
        words.push(format!("{left} more"));
    }
    let room = pools.iter().find_map(super::workers::room);
    let room = room.map_or_else(String::new, |room| format!(" {room}"));
    Some(format!("Processes: {}.{room}", words.join("; ")))
}

fn group(group: &Group, pools: &[Pool]) -> String {
    let size = match (mb(group.least as i64), mb(group.most as i64)) {
        (least, most) if least == most => format!("{most} MB"),
        (least, most) => format!("{least} to {most} MB"),
    };
    match group.pids.as_slice() {
        [pid] if group.differs => {
            let excess = pools.iter().find_map(|pool| workers::excess(pool, *pid));
            let excess = excess.filter(|(_, bytes)| *bytes >= LEAST_PART);
            let more = excess.map_or_else(String::new, |(part, bytes)| {
                format!(", {} MB more {part} than the median", mb(bytes as i64))
            });
            format!("{} ({pid}) differs: {size}{more}", group.name)
        }
        [pid] => format!("{} ({pid}) {size}", group.name),
        several => format!("{} {} of {size} each", several.len(), group.name),
    }
}

/// The next step: its command on a line of its own, so that it can be copied.
pub fn next(verdict: &Verdict, findings: &[Finding], columns: usize) -> Vec<String> {
    const INDENT: usize = 6;
    let Some(next) = &verdict.next else {
        return Vec::new();
    };
    // What opens a gate is a sentence.
    let is_sentence = verdict.kind == VerdictKind::NotEnoughEvidence && next.ends_with('.');
    let (command, why) = match next.split_once(": ") {
        _ if is_sentence => return wrap(&format!("Next: {next}"), columns, INDENT),
        Some((command, why)) => (command, Some(why)),
        None => (next.as_str(), remedy(verdict, findings)),
    };
    let mut lines = vec![format!("Next: {command}")];
    if let Some(why) = why {
        let indented = wrap(why, columns - INDENT, 0);
        lines.extend(indented.iter().map(|line| format!("{:INDENT$}{line}", "")));
    }
    lines
}

fn remedy<'a>(verdict: &Verdict, findings: &'a [Finding]) -> Option<&'a str> {
    let main = verdict.main?;
    let found = findings.iter().find(|finding| finding.cause == main)?;
    found.remedy.as_deref()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_verdict_the_first_clause_is_the_headline_and_doubts_stay() {
        for (sentence, headline, rest) in [
            (
                "Retention: 8 of 9 MB of a (7) are freed, mostly 8 MB free pages. 1.5 MB more could not be identified.",
                "Retention: 8 of 9 MB of a (7) are freed.",
                Some("1.5 MB more could not be identified."),
            ),
            (
                "Not malloc's heap: 9 of 10 MB of a (7), mostly 8 MB stacks. Another allocator does not change that.",
                "Not malloc's heap: 9 of 10 MB of a (7).",
                Some("Another allocator does not change that."),
            ),
            (
                "In use: 9 MB are live blocks, which no allocator lowers. To see whether they grow, look again later.",
                "In use: 9 MB are live blocks.",
                None,
            ),
            ("Nothing to gain: a uses 1.0 MB.", "Nothing to gain: a uses 1.0 MB.", None),
        ] {
            let (first, more) = split(sentence);
            assert_eq!((first.as_str(), more.as_deref()), (headline, rest));
        }
    }

    #[test]
    fn a_headline_fits_a_line_of_eighty_columns() {
        let who = "gunicorn (12345 and 4 more)";
        for long in [
            format!("Retention: 1000 of 1234 MB of {who} are freed and held by the allocator."),
            "Not enough evidence: 1000 of 1234 MB of python3 (12345) could not be identified as live or free."
                .to_owned(),
            format!("Nothing to gain: {who} uses 12.5 MB, and holds little freed memory."),
        ] {
            let short = shortened(long, 80);
            assert!(short.chars().count() <= 80, "{short}");
        }
        let fits = "Retention: 8 of 9 MB of a (7) are freed and held by the allocator.";
        assert_eq!(shortened(fits.to_owned(), 80), fits);
    }
}
