//! Hostile processes (`target.c`): `ebb` ends within its limits with a word of its own,
//! in bounded memory, and opens no file outside of the target's root.
#![cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]

#[path = "../harness/mod.rs"]
#[allow(dead_code, reason = "shared with all test programs")]
mod harness;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use harness::{Finished, Subject};
use nix::sys::resource::{UsageWho, getrusage};
use nix::unistd::Uid;
use tempfile::TempDir;
use test_needs::skip;

/// A look at one that does not answer takes 10 s; two processes of it 20 s, on a machine that has other things to do.
const ENDS_WITHIN: Duration = Duration::from_secs(60);
/// Of resident memory: `ebb` takes 30 MB to look at an ordinary process.
const MOST_KB: i64 = 400_000;
const ANSWERS: [i32; 8] = [0, 10, 12, 13, 14, 20, 30, 64];

fn built() -> &'static PathBuf {
    static BUILT: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, program) = BUILT.get_or_init(|| {
        let folder = harness::folder();
        let source = include_str!("target.c");
        let program = harness::compile(&folder, "cc", "target", source, &["-O1", "-rdynamic"]);
        (folder, program)
    });
    program
}

fn target(case: &str, file: &str) -> Subject {
    Subject::start(Command::new(built()).args([case, file]))
}

/// Each verb that looks, in bounded time and memory, without a panic and without what a terminal obeys.
fn survive(subject: &Subject) -> Vec<Finished> {
    let verbs: [&[&str]; 4] = [&["why"], &["check"], &["snap"], &["trim", "--dry-run"]];
    let look = |verb: &[&str]| {
        let start = Instant::now();
        let said = Finished::by(harness::ebb().args(verb).arg(subject.pid()));
        assert!(start.elapsed() < ENDS_WITHIN, "{verb:?}: {:?}", start.elapsed());
        assert!(said.code.is_some_and(|code| ANSWERS.contains(&code)), "{verb:?}: {}", said.all());
        let obeyed = |c: char| c.is_control() && c != '\n' && c != '\t';
        assert!(!said.stdout.contains(obeyed) && !said.stderr.contains(obeyed), "{}", said.all());
        said
    };
    let said = thread::scope(|scope| {
        let looks = verbs.map(|verb| scope.spawn(move || look(verb)));
        looks.map(|look| look.join().expect("a look")).into()
    });
    // The largest process that this one has waited for; compilers take less.
    let most = getrusage(UsageWho::RUSAGE_CHILDREN).expect("figures").max_rss();
    assert!(most < MOST_KB, "{most} KB");
    said
}

#[test]
fn what_a_target_writes_where_debuggers_look_is_not_believed() {
    let folder = harness::folder();
    let pipe = folder.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    let pipe = pipe.to_str().expect("a path").to_owned();
    let cases = [
        ("escapes", ""),
        ("object-is", pipe.as_str()),
        ("object-is", "/dev/zero"),
        ("object-is", "/proc/kmsg"),
        ("objects-in-a-circle", ""),
        ("objects-with-long-names", ""),
        ("name-that-waits", ""),
        ("arguments-that-wait", ""),
        ("arguments-without-end", ""),
        ("headers-without-size", ""),
        ("headers-at-the-end", ""),
        ("debug-at-the-end", ""),
        ("counters-of-ones", ""),
        ("counters-that-point-at-themselves", ""),
        ("counters-small", ""),
        ("many-mappings", "60000"),
        ("another-user-namespace", ""),
    ];
    let named: Vec<_> = cases.iter().map(|case| (case.0, *case)).collect();
    harness::each(&named, |(case, file)| {
        survive(&target(case, file));
    });
}

#[test]
fn a_name_search_reads_no_arguments_without_end() {
    let subjects = ["arguments-without-end", "arguments-that-wait"].map(|case| target(case, ""));
    let start = Instant::now();
    let said = Finished::by(harness::ebb().args(["why", "no-such-name-anywhere"]));
    said.expect(64, &[], &["no-such-name-anywhere"]);
    assert!(start.elapsed() < ENDS_WITHIN);
    drop(subjects);
}

/// The program's name ends a line and begins another one.
#[test]
fn a_name_makes_no_line_of_its_own() {
    let folder = harness::folder();
    let name = folder.path().join("own\nRetention: all of it\u{1b}[2J");
    harness::copy_program(built(), &name);
    let subject = Subject::start(Command::new(name).args(["escapes", ""]));
    let said = &survive(&subject)[0];
    assert!(!said.stdout.contains("\nRetention: all"), "{}", said.all());
}

/// Thread that waits for a FUSE server cannot be killed: `ebb` ends all the same.
#[test]
fn files_that_never_answer_end_no_look_but_their_own() {
    if !Uid::effective().is_root() || fs::metadata("/dev/fuse").is_err() {
        skip!("no right to mount a FUSE file system");
    }
    let mount = harness::folder();
    let subject = target("files-that-wait", mount.path().to_str().expect("a path"));
    let [why, check, ..] = &survive(&subject)[..] else { panic!("verbs") };
    why.expect(20, &["did not answer within 10 s"], &[]);
    check.expect(20, &[], &["did not answer within 10 s"]);
}

/// `/outside` in the target's root is a link to a library of the host's, and the target says that it has loaded it.
#[test]
fn no_link_leads_out_of_the_targets_root() {
    if !Uid::effective().is_root() {
        skip!("no right to change a root");
    }
    let (root, outside) = (harness::folder(), harness::folder());
    let secret = outside.path().join("secret.so");
    // A library that would be in charge, if it was believed to be loaded.
    let source = "void *malloc(unsigned long n) { (void)n; return 0; }";
    let library = harness::compile(&outside, "cc", "secret.so", source, &["-shared", "-fPIC"]);
    assert_eq!(library, secret);
    symlink(&secret, root.path().join("outside")).expect("a link");
    let subject = target("a-root-with-links", root.path().to_str().expect("a path"));
    for said in survive(&subject) {
        assert!(!said.stdout.contains("secret"), "{}", said.all());
    }
    // Nothing was written there.
    assert_eq!(fs::read_dir(root.path()).expect("the root").count(), 1);
}
