//! What is foreseen, what is refused and why, and what is measured.

use std::process::Command;

use crate::harness::subjects::{self, Cgroup};
use crate::harness::{self, Finished, Subject, output, words};
use crate::{assert_fact, bytes, text, trim};
use test_needs::skip;

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

/// A file in the page cache.
const FILE_BYTES: u64 = 64 << 20;

/// Of a cgroup. Nothing anonymous goes with it.
#[test]
fn the_page_cache_goes_and_anonymous_memory_stays() {
    let Some(cgroup) = Cgroup::new("cache").filter(|it| it.0.join("memory.stat").exists()) else {
        skip!("no right to make a memory cgroup");
    };
    // Not on tmpfs, whose pages are no cache.
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let script = format!(
        "head -c {FILE_BYTES} /dev/urandom > {file}; sync {file}; cat {file} > /dev/null; echo ready; read line",
        file = file.path().display(),
    );
    let _shell = Subject::start(&mut cgroup.with(Command::new("sh").args(["-c", &script])));
    let mut command = harness::ebb();
    let trim = Finished::by(command.args(["trim", "--page-cache", "--json"]).arg(&cgroup.0)).json();
    let cache = &trim["page_cache"];
    let figure = |name: &str| cache[name].as_u64();
    if cache["refused"].is_null() {
        assert!(figure("before") > Some(FILE_BYTES / 2), "{cache}");
        assert!(figure("after") < Some(FILE_BYTES / 4), "{cache}");
        // The shell's own pages; a page or two of it may come or go meanwhile.
        let changed = figure("anon_before").unwrap().abs_diff(figure("anon_after").unwrap());
        assert!(changed < 1 << 20, "{cache}");
    } else {
        // With swap on version 1, or a kernel that is too old: said so, and nothing done.
        assert!(cache["refused"]["remedy"].is_string(), "{cache}");
    }
}
