//! A diagnosis as text: the verdict first, all lines, what is missing.

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
            ..example::snapshot(vec![Process {
                pid: 7,
                memory: Some(BTreeMap::new()),
                ..Process::default()
            }])
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
    assert!(
        lines[1].starts_with("At 80 % of the limit: 400 of 500 MB, 100 MB left (limit of /a)"),
        "{text}"
    );
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
    long.snapshot.processes = (0..40)
        .map(|pid| Process { pid, name: format!("service-{pid}"), ..Process::default() })
        .collect();
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
