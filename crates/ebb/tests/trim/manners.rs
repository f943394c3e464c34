//! What is foreseen, what is refused and why, and what is measured.

use crate::harness::{self, Finished, Subject, output, subjects, words};
use crate::{assert_fact, bytes, text, trim};

const OK: i32 = 0;
const RETENTION: i32 = 10;
const PERMISSION: i32 = 30;
const UNSUPPORTED: i32 = 31;
const USAGE: i32 = 64;

fn burst() -> Subject {
    Subject::start(&mut subjects::command("c:burst-1-thread"))
}

#[test]
fn what_is_foreseen_goes_back_and_then_there_is_nothing_more() {
    for case in ["c:burst-1-thread", "c:burst-4-threads", "c:first-thread-ended"] {
        let subject = Subject::start(&mut subjects::command(case));
        let pid = subject.pid();
        let looked = trim(&pid, "--wait 60s");
        assert_fact(&looked, RETENTION, "reason", "not-asked");
        let done = trim(&pid, "--wait 60s --inject --max-pause 60s");
        assert_fact(&done, OK, "outcome", "trimmed");
        let (looked, done) = (looked.1, done.1);
        let [before, foreseen] = [&looked, &done].map(|it| bytes(&it["predicted"]["returns"]));
        assert!((foreseen - before).abs() <= 0.02 * foreseen, "{case}: {looked} {done}");
        let measured = &done["measured"];
        let returned = bytes(&measured["rss_before"]) - bytes(&measured["rss_after"]);
        // The kernel counts resident pages in batches for each processor.
        assert!(
            (returned - foreseen).abs() <= 0.02 * foreseen + 1e6,
            "{case}: foreseen {foreseen}, returned {returned}: {done}"
        );
        assert!(bytes(&done["stopped_s"]) > 0.0 && bytes(&done["ran_s"]) > 0.0);
        assert_fact(&trim(&pid, "--wait 60s --inject"), OK, "reason", "below-threshold");
    }
}

#[test]
fn the_text_says_what_was_foreseen_done_and_measured() {
    let subject = burst();
    let looked = ["expected  malloc_trim returns ", "not done  nothing was changed; --inject"];
    text(&subject.pid(), "").expect(RETENTION, &looked, &[]);
    let done = ["was stopped for", "no other thread was stopped", "MB were returned"];
    text(&subject.pid(), "--inject --max-pause 60s").expect(OK, &done, &[]);
}

#[test]
fn limits_apply_before_the_call() {
    let subject = burst();
    for (options, code, reason) in [
        ("--inject --min 100GB", OK, "below-threshold"),
        ("--inject --max-pause 0s", RETENTION, "too-long"),
        // Neither has changed anything.
        ("", RETENTION, "not-asked"),
    ] {
        let left = trim(&subject.pid(), &format!("--wait 60s {options}"));
        assert_fact(&left, code, "reason", reason);
    }
}

#[test]
fn other_allocators_are_named_with_what_to_do() {
    for (allocator, code, reason, remedy) in [
        ("jemalloc", UNSUPPORTED, "cannot-trim", "arena.4096.purge"),
        ("ebbmalloc", OK, "returns-by-itself", ""),
    ] {
        let mut command = subjects::command("c:burst-1-thread");
        command.env("LD_PRELOAD", subjects::preload(allocator));
        let left = trim(&Subject::start(&mut command).pid(), "--wait 60s --inject");
        assert_fact(&left, code, "reason", reason);
        assert!(left.1["remedy"].as_str().unwrap_or_default().contains(remedy), "{}", left.1);
    }
}

#[test]
fn a_right_that_is_missing_is_named() {
    if !nix::unistd::Uid::effective().is_root() {
        return;
    }
    let (subject, folder) = (burst(), harness::folder());
    let mut command = harness::unprivileged_ebb(&folder);
    let named = "Run ebb as that user, or as root";
    Finished::by(command.args(["trim", &subject.pid(), "--inject"])).expect(
        PERMISSION,
        &[named],
        &[],
    );
}

#[test]
fn a_wrong_command_line_is_a_usage_error() {
    let subject = Subject::start(&mut subjects::command("c:live-peak"));
    text(&subject.pid(), "--page-cache").expect(USAGE, &[], &["is not a cgroup"]);
    text(&subject.pid(), "--min many").expect(USAGE, &[], &["16MB"]);
    let refused = output(harness::ebb().args(words("trim 4194999")));
    harness::assert_refused(&refused, USAGE, &["4194999"]);
}
