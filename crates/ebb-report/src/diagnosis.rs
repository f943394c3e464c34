//! A diagnosis in a terminal: [`short`] by default; in full the verdict first, then the ledgers, the causes, and what to
//! type next.

use std::fmt::Write;

use comfy_table::{CellAlignment, ContentArrangement, presets};

use ebb_diagnosis::facts::diagnosis::{Bridge, Diagnosis, Finding, Ledger, Line, Weight};
use ebb_process::snapshot::{Cgroup, Missing, Snapshot};

mod python;
pub mod short;
pub(crate) mod words;
mod workers;

use words::mb;
pub use words::{label, wrap};

/// Widths beyond this are harder to read, not easier.
const MOST_COLUMNS: u16 = 100;

/// How much to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// At most ten lines of so many columns each.
    Short(usize),
    /// Every figure.
    Full,
}

/// All of them, one below the other.
pub fn render(diagnoses: &[Diagnosis], form: Form) -> String {
    let one = |diagnosis: &Diagnosis| match form {
        Form::Short(columns) => short::render(diagnosis, columns),
        Form::Full => full(diagnosis),
    };
    diagnoses.iter().map(one).collect::<Vec<_>>().join("\n")
}

fn full(diagnosis: &Diagnosis) -> String {
    let snapshot = &diagnosis.snapshot;
    let mut out = String::new();
    let _ = writeln!(out, "{}\n", diagnosis.verdict.sentence);
    if !snapshot.processes.is_empty() {
        let _ = writeln!(out, "{}\n", ledger(&diagnosis.ledger, snapshot));
    }
    if let Some(cgroup) = &snapshot.cgroup {
        let _ = writeln!(out, "{}\n", cgroup_ledger(cgroup));
        if let Some(line) = stress(cgroup) {
            let _ = writeln!(out, "{line}");
        }
    }
    if let Some(bridge) = &diagnosis.bridge {
        let _ = writeln!(out, "{}\n", bridge_line(bridge));
    }
    for pool in &diagnosis.workers {
        let _ = writeln!(out, "{}\n", workers::table(pool));
    }
    findings(&mut out, &diagnosis.findings);
    for missing in &snapshot.missing {
        let _ = writeln!(out, "? {}", missing_line(missing));
    }
    notes(&mut out, snapshot);
    if let Some(next) = &diagnosis.verdict.next {
        let _ = writeln!(out, "\nNext: {next}");
    }
    out
}

/// What readers say of each process, once where workers say the same.
fn notes(out: &mut String, snapshot: &Snapshot) {
    let mut notes: Vec<(String, &str, Vec<String>)> = Vec::new();
    for process in &snapshot.processes {
        let heap = process.heap.iter().flat_map(|heap| heap.notes.clone());
        for note in heap.chain(process.python.iter().flat_map(python::lines)) {
            let known = notes.iter_mut().find(|(text, name, _)| *text == note && *name == process.name);
            let pid = process.pid.to_string();
            match known {
                Some((_, _, pids)) => pids.push(pid),
                None => notes.push((note, &process.name, vec![pid])),
            }
        }
    }
    for (note, name, pids) in notes {
        let _ = writeln!(out, "  {name} ({}): {note}", pids.join(", "));
    }
}

fn ledger(ledger: &Ledger, snapshot: &Snapshot) -> String {
    let measure = if ledger.proportional { "PSS" } else { "RSS in part" };
    let row = |line: &Line| {
        let note = line.note.clone().unwrap_or_default();
        [label(line.cause).to_owned(), mb(line.bytes as i64), note]
    };
    let mut rows: Vec<[String; 3]> = ledger.lines.iter().map(row).collect();
    rows.push(["remainder".into(), signed(ledger.remainder), "what changed between two readings".into()]);
    rows.push([
        format!("{} ({measure})", count(snapshot.processes.len() as u64, "process")),
        mb(ledger.total as i64),
        String::new(),
    ]);
    draw(["processes", "MB", ""], &rows)
}

fn cgroup_ledger(cgroup: &Cgroup) -> String {
    let parts = &cgroup.parts;
    let working_set =
        Option::zip(cgroup.usage, parts.inactive_file).map(|(usage, inactive)| usage.saturating_sub(inactive));
    let of = cgroup.limit_of.as_ref().filter(|path| **path != cgroup.path);
    let of = of.map_or_else(String::new, |path| format!("of {path}"));
    let processes = count(cgroup.pids.len() as u64, "process");
    let rows = [
        ("anonymous", parts.anon, ""),
        ("file", parts.file, ""),
        ("  mapped", parts.mapped, ""),
        ("  shared memory", parts.shared, "cannot be dropped"),
        ("  active", parts.active_file, ""),
        ("  inactive", parts.inactive_file, "dropped first"),
        ("kernel", parts.kernel, ""),
        ("  slab", parts.slab, ""),
        ("  page tables", parts.page_tables, ""),
        ("  threads' stacks", parts.kernel_stack, ""),
        ("sockets", parts.sockets, ""),
        ("swap", cgroup.swap, ""),
        ("usage", cgroup.usage, &processes),
        ("usage less inactive file", working_set, "what an autoscaler sees"),
        ("limit", cgroup.limit, &of),
        ("high", cgroup.high, "the kernel slows down above it"),
        ("peak", cgroup.peak, ""),
    ];
    let row =
        |(label, bytes, note): (&str, Option<u64>, &str)| Some([label.to_owned(), mb(bytes? as i64), note.to_owned()]);
    let rows: Vec<_> = rows.into_iter().filter_map(row).collect();
    let title = format!("cgroup v{} {}", cgroup.version, cgroup.path);
    draw([&title, "MB", ""], &rows)
}

/// What was in the way, if anything was.
fn stress(cgroup: &Cgroup) -> Option<String> {
    let stress = &cgroup.stress;
    let times = |value: Option<u64>, what: &str| {
        let value = value.filter(|&value| value > 0)?;
        Some(format!("{value} {what}"))
    };
    let percent = |value: Option<f64>, what: &str| {
        let value = value.filter(|&value| value > 0.0)?;
        Some(format!("{value:.1} % of the last minute {what}"))
    };
    let lines: Vec<String> = [
        times(stress.oom_kills, "processes OOM-killed"),
        times(stress.limit_hits, "times at a limit"),
        times(stress.throttled_periods, "periods throttled by the CPU quota").map(|text| match stress.throttled_s {
            Some(seconds) => format!("{text} ({seconds:.1} s)"),
            None => text,
        }),
        percent(stress.memory_some_60, "some task waited for memory"),
        percent(stress.memory_full_60, "all tasks waited for memory"),
    ]
    .into_iter()
    .flatten()
    .collect();
    (!lines.is_empty()).then(|| format!("! {}", lines.join("; ")))
}

fn bridge_line(bridge: &Bridge) -> String {
    let mut text = format!(
        "Anonymous memory, MB: {} these processes, {} others in the cgroup, {} remainder, {} the cgroup.",
        mb(bridge.target_anon as i64),
        mb(bridge.others_anon as i64),
        signed(bridge.remainder),
        mb(bridge.cgroup_anon as i64),
    );
    if let (Some(seen), Some(returnable)) = (bridge.working_set, bridge.returnable) {
        let _ = write!(
            text,
            "\nOf the {} MB that an autoscaler sees, {} MB are free pages that an allocator can return.",
            mb(seen as i64),
            mb(returnable as i64)
        );
    }
    text
}

fn findings(out: &mut String, findings: &[Finding]) {
    for finding in findings {
        let mark = match finding.weight {
            Weight::Main => "* ",
            Weight::Part => "+ ",
            Weight::Unknown => "? ",
            Weight::RuledOut => "- ",
        };
        let ruled_out = finding.weight == Weight::RuledOut;
        let not = if ruled_out { "not " } else { "" };
        let error = finding.error.as_ref().filter(|_| !ruled_out);
        let _ = writeln!(
            out,
            "{mark}{not}{}: {}{}",
            label(finding.cause),
            finding.evidence,
            error.map_or_else(String::new, |error| format!(", {error}"))
        );
        if let Some(remedy) = &finding.remedy {
            let _ = writeln!(out, "    {remedy}");
        }
    }
}

fn missing_line(missing: &Missing) -> String {
    let of = missing.pid.map_or_else(String::new, |pid| format!(" of {pid}"));
    let remedy = missing.remedy.as_ref().map_or_else(String::new, |remedy| format!(" {remedy}"));
    format!("{}{of}: {}.{remedy}", missing.what, missing.why)
}

fn draw(header: [&str; 3], rows: &[[String; 3]]) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(MOST_COLUMNS);
    table.set_header(header);
    table.add_rows(rows);
    if let Some(column) = table.column_mut(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

fn count(number: u64, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ if noun.ends_with('s') => format!("{number} {noun}es"),
        _ => format!("{number} {noun}s"),
    }
}

fn signed(bytes: i64) -> String {
    match mb(bytes.abs()).as_str() {
        "0.0" => "±0.0".to_owned(),
        size if bytes < 0 => format!("\u{2212}{size}"),
        size => format!("+{size}"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::words::wrap;
    use super::*;
    use ebb_diagnosis::facts::diagnosis::{Cause, Verdict, VerdictKind};
    use ebb_process::example;
    use ebb_process::snapshot::{CgroupParts, Process, Stress};

    fn diagnosis() -> Diagnosis {
        Diagnosis {
            verdict: Verdict {
                kind: VerdictKind::Retention,
                main: Some(Cause::Trimmable),
                sentence: "Retention: much.".into(),
                next: Some("ebb compare WORKLOAD".into()),
            },
            ledger: Ledger {
                total: 300_000_000,
                proportional: true,
                lines: vec![Line { cause: Cause::Trimmable, bytes: 301_000_000, note: None }],
                remainder: -1_000_000,
            },
            bridge: Some(Bridge {
                target_anon: 300_000_000,
                others_anon: 0,
                cgroup_anon: 302_000_000,
                remainder: 2_000_000,
                working_set: Some(310_000_000),
                returnable: Some(290_000_000),
            }),
            findings: vec![
                Finding {
                    cause: Cause::Trimmable,
                    weight: Weight::Main,
                    bytes: Some(301_000_000),
                    evidence: "301 of 300 MB (100 %)".into(),
                    error: Some("within 1 % of the heap".into()),
                    remedy: Some("trim it".into()),
                },
                Finding {
                    cause: Cause::Stacks,
                    weight: Weight::RuledOut,
                    bytes: Some(0),
                    evidence: "0.0 of 300 MB (0 %)".into(),
                    error: None,
                    remedy: None,
                },
            ],
            workers: Vec::new(),
            snapshot: Snapshot {
                cgroup: Some(Cgroup {
                    version: 2,
                    path: "/a/b".into(),
                    usage: Some(400_000_000),
                    limit: Some(500_000_000),
                    limit_of: Some("/a".into()),
                    parts: CgroupParts { inactive_file: Some(90_000_000), ..CgroupParts::default() },
                    stress: Stress {
                        oom_kills: Some(2),
                        throttled_periods: Some(3),
                        throttled_s: Some(1.5),
                        ..Stress::default()
                    },
                    pids: vec![7],
                    ..Cgroup::default()
                }),
                missing: vec![Missing {
                    pid: Some(7),
                    what: "heap".into(),
                    why: "closed".into(),
                    remedy: Some("Be root.".into()),
                }],
                ..example::snapshot(vec![Process { pid: 7, memory: Some(BTreeMap::new()), ..Process::default() }])
            },
        }
    }

    #[test]
    fn the_verdict_is_the_first_line_and_the_next_command_the_last() {
        let text = render(&[diagnosis()], Form::Full);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "Retention: much.");
        assert_eq!(lines[lines.len() - 1], "Next: ebb compare WORKLOAD");
        for expected in [
            "1 process (PSS)",
            "\u{2212}1.0",
            "cgroup v2 /a/b",
            "310.0  what an autoscaler sees",
            "of /a",
            "! 2 processes OOM-killed; 3 periods throttled by the CPU quota (1.5 s)",
            "+2.0 remainder",
            "290.0 MB are free pages",
            "* malloc_trim would return: 301 of 300 MB (100 %), within 1 % of the heap",
            "- not stacks: 0.0 of 300 MB",
            "? heap of 7: closed. Be root.",
        ] {
            assert!(text.contains(expected), "{expected} is not in\n{text}");
        }
        for absent in ["slab", "page tables", "high", "peak"] {
            assert!(!text.contains(absent), "{absent} is in\n{text}");
        }
    }

    #[test]
    fn the_short_form_has_the_headroom_in_line_two_and_the_next_step_last() {
        let text = render(&[diagnosis()], Form::Short(80));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "Retention: much.");
        assert!(lines[1].starts_with("At 80 % of the limit: 400 of 500 MB, 100 MB left (limit of /a)"), "{text}");
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("2 processes were OOM-killed"), "{text}");
        assert!(text.contains("Memory: 301 MB freed in whole pages"), "{text}");
        assert!(text.contains("Not read: heap of 7: closed."), "{text}");
        assert_eq!(lines[lines.len() - 2], "Next: ebb compare WORKLOAD");
        assert_eq!(lines[lines.len() - 1], "      trim it", "the remedy");
        assert!(lines.len() <= short::MOST_LINES, "{text}");
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn with_more_than_ten_lines_the_least_important_go() {
        let mut long = diagnosis();
        let words = "word ".repeat(60);
        long.verdict.sentence = format!("Retention: of much; {words}");
        long.verdict.next = Some(format!("ebb compare WORKLOAD: {words}"));
        long.snapshot.missing[0].why = words.clone();
        long.snapshot.processes =
            (0..40).map(|pid| Process { pid, name: format!("service-{pid}"), ..Process::default() }).collect();
        let text = render(&[long], Form::Short(80));
        assert!(text.lines().count() <= short::MOST_LINES, "{text}");
        assert!(text.starts_with("Retention: of much.\nAt 80 % of the limit"), "{text}");
        assert!(text.contains("\nNext: ebb compare WORKLOAD\n"), "{text}");
    }

    #[test]
    fn a_name_cannot_break_a_line() {
        assert_eq!(wrap("a\u{1b}[2Jb c", 80, 2), ["a?[2Jb c"], "nor move the cursor");
        assert_eq!(wrap("one two three", 8, 2), ["one two", "  three"]);
        assert_eq!(wrap("", 80, 2), [""]);
    }
}
