//! What is foreseen, what is refused and why, and what is measured.

use crate::harness::{self, output, stderr, stdout};
use crate::harness::{Subject, subjects};

const OK: i32 = 0;
const RETENTION: i32 = 10;
const PERMISSION: i32 = 30;
const UNSUPPORTED: i32 = 31;
const USAGE: i32 = 64;

/// `ebb trim --json` of a process: its status and the facts of the process.
fn trim(pid: &str, options: &[&str]) -> (i32, serde_json::Value) {
    let mut command = harness::ebb();
    command.args(["trim", pid, "--json", "--wait", "60s"]).args(options);
    let result = output(&mut command);
    let value: serde_json::Value = serde_json::from_slice(&result.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", stderr(&result)));
    let code = result.status.code().expect("a status");
    (code, value["processes"][0].clone())
}

fn subject(case: &str, preload: Option<&str>) -> Subject {
    let mut command = subjects::command(case);
    if let Some(allocator) = preload {
        command.env("LD_PRELOAD", subjects::preload(allocator));
    }
    Subject::start(&mut command)
}

fn bytes(value: &serde_json::Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no figure: {value}"))
}

#[test]
fn what_is_foreseen_goes_back_and_then_there_is_nothing_more() {
    for case in ["c:burst-1-thread", "c:burst-4-threads", "c:first-thread-ended"] {
        let subject = subject(case, None);
        let (code, looked) = trim(&subject.pid(), &[]);
        assert_eq!((code, &looked["reason"]), (RETENTION, &"not-asked".into()), "{looked}");
        let (code, done) = trim(&subject.pid(), &["--inject", "--max-pause", "60s"]);
        assert_eq!((code, &done["outcome"]), (OK, &"trimmed".into()), "{done}");
        let foreseen = bytes(&done["predicted"]["returns"]);
        let before = bytes(&looked["predicted"]["returns"]);
        assert!((foreseen - before).abs() <= 0.02 * foreseen, "{case}: {looked} {done}");
        let measured = &done["measured"];
        let returned = bytes(&measured["rss_before"]) - bytes(&measured["rss_after"]);
        // The kernel counts resident pages in batches for each processor.
        assert!(
            (returned - foreseen).abs() <= 0.02 * foreseen + 1e6,
            "{case}: foreseen {foreseen}, returned {returned}: {done}"
        );
        assert!(bytes(&done["stopped_s"]) > 0.0 && bytes(&done["ran_s"]) > 0.0);
        let (code, again) = trim(&subject.pid(), &["--inject"]);
        assert_eq!((code, &again["reason"]), (OK, &"below-threshold".into()), "{again}");
    }
}

#[test]
fn the_text_says_what_was_foreseen_done_and_measured() {
    let subject = subject("c:burst-1-thread", None);
    let trim = |options: &[&str]| {
        let mut command = harness::ebb();
        output(command.args(["trim", &subject.pid(), "--wait", "60s"]).args(options))
    };
    let looked = stdout(&trim(&[]));
    assert!(looked.contains("expected  malloc_trim returns "), "{looked}");
    assert!(looked.contains("not done  nothing was changed; --inject"), "{looked}");
    let done = stdout(&trim(&["--inject", "--max-pause", "60s"]));
    for words in ["was stopped for", "no other thread was stopped", "MB were returned"] {
        assert!(done.contains(words), "{words}: {done}");
    }
}

#[test]
fn limits_apply_before_the_call() {
    let subject = subject("c:burst-1-thread", None);
    let (code, left) = trim(&subject.pid(), &["--inject", "--min", "100GB"]);
    assert_eq!((code, &left["reason"]), (OK, &"below-threshold".into()), "{left}");
    let (code, left) = trim(&subject.pid(), &["--inject", "--max-pause", "0s"]);
    assert_eq!((code, &left["reason"]), (RETENTION, &"too-long".into()), "{left}");
    // Neither has changed anything.
    let (_, left) = trim(&subject.pid(), &[]);
    assert_eq!(left["reason"], "not-asked", "{left}");
}

#[test]
fn other_allocators_are_named_with_what_to_do() {
    let (code, left) = trim(&subject("c:burst-1-thread", Some("jemalloc")).pid(), &["--inject"]);
    assert_eq!((code, &left["reason"]), (UNSUPPORTED, &"cannot-trim".into()), "{left}");
    assert!(left["remedy"].as_str().is_some_and(|text| text.contains("arena.4096.purge")));
    let (code, left) = trim(&subject("c:burst-1-thread", Some("ebbmalloc")).pid(), &["--inject"]);
    assert_eq!((code, &left["reason"]), (OK, &"returns-by-itself".into()), "{left}");
}

#[test]
fn a_right_that_is_missing_is_named() {
    if !nix::unistd::Uid::effective().is_root() {
        return;
    }
    let subject = subject("c:burst-1-thread", None);
    let folder = harness::folder();
    let mut command = harness::unprivileged_ebb(&folder);
    let result = output(command.args(["trim", &subject.pid(), "--inject"]));
    assert_eq!(result.status.code(), Some(PERMISSION), "{}", stderr(&result));
    assert!(stdout(&result).contains("Run ebb as that user, or as root"), "{}", stdout(&result));
}

#[test]
fn a_wrong_command_line_is_a_usage_error() {
    let subject = subject("c:live-peak", None);
    let refused = |options: &[&str], words: &[&str]| {
        let mut command = harness::ebb();
        let result = output(command.args(["trim", &subject.pid()]).args(options));
        assert_eq!(result.status.code(), Some(USAGE), "{}", stderr(&result));
        for word in words {
            assert!(stderr(&result).contains(word), "{word}: {}", stderr(&result));
        }
    };
    refused(&["--page-cache"], &["is not a cgroup"]);
    refused(&["--min", "many"], &["16MB"]);
    harness::assert_refused(&output(harness::ebb().args(["trim", "4194999"])), USAGE, &["4194999"]);
}
