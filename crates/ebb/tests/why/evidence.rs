//! No verdict is surer than its evidence: memory that is easily taken for something else, allocators that are out of
//! sight, targets that end or change while they are looked at.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::harness::subjects::{self, Subject};
use crate::harness::{self, output, stderr, stdout};

const IN_USE: i32 = 0;
const RETENTION: i32 = 10;
const NOT_HEAP: i32 = 12;
const NOT_ENOUGH: i32 = 20;
const MB: u64 = 1_000_000;

/// What `ebb why --json` says of one process.
struct Said {
    code: i32,
    value: serde_json::Value,
}

impl Said {
    fn of(subject: &Subject) -> Self {
        let why = output(harness::ebb().args(["why", "--json", &subject.pid()]));
        let value: serde_json::Value = serde_json::from_slice(&why.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", stderr(&why)));
        Self { code: why.status.code().expect("a code"), value: value[0].clone() }
    }

    fn sentence(&self) -> &str {
        self.value["verdict"]["sentence"].as_str().expect("a text")
    }

    fn main(&self) -> &str {
        self.value["verdict"]["main"].as_str().unwrap_or("none")
    }

    /// Bytes of a line of the ledger.
    fn line(&self, cause: &str) -> u64 {
        let lines = self.value["ledger"]["lines"].as_array().expect("lines");
        let line = lines.iter().find(|line| line["cause"] == cause);
        line.map_or(0, |line| line["bytes"].as_u64().expect("bytes"))
    }

    fn reader(&self) -> &str {
        let heap = &self.value["snapshot"]["processes"][0]["heap"];
        heap["reader"].as_str().unwrap_or("none")
    }
}

fn evidence(case: &str) -> Command {
    subjects::command(&format!("evidence:{case}"))
}

#[track_caller]
fn assert_live(said: &Said, least: u64) {
    assert_eq!(said.code, IN_USE, "{}", said.sentence());
    assert_eq!(said.main(), "live", "{}", said.sentence());
    assert!(said.line("live") >= least, "{}", said.value["ledger"]);
    assert!(said.line("anonymous") < MB, "{}", said.value["ledger"]);
}

#[test]
fn large_blocks_whose_mappings_are_split_are_live_blocks() {
    for case in [
        "huge-pages-from-the-second-page",
        "a-part-locked",
        "a-part-not-dumped",
        "a-part-read-only",
    ] {
        let subject = Subject::start(&mut evidence(case));
        assert_live(&Said::of(&subject), 95 * MB);
    }
}

#[test]
fn numpys_arrays_are_live_blocks() {
    let code = "import numpy\nheld = [numpy.ones(1_000_000) for _ in range(10)]\n\
                print('ready', flush=True)\nimport sys; sys.stdin.read()";
    let mut python = Command::new("python3");
    python.args(["-c", "import numpy"]);
    if !output(&mut python).status.success() {
        eprintln!("python3 has no numpy: left out");
        return;
    }
    let subject = Subject::start(Command::new("python3").args(["-c", code]));
    assert_live(&Said::of(&subject), 80 * MB);
}

#[test]
fn free_pages_that_are_locked_are_foreseen_by_nobody() {
    let locks = output(Command::new("sh").args(["-c", "ulimit -l"]));
    if !nix::unistd::Uid::effective().is_root() && stdout(&locks).trim() != "unlimited" {
        eprintln!("no right to lock so much memory: left out");
        return;
    }
    let subject = Subject::start(&mut evidence("all-locked"));
    let said = Said::of(&subject);
    assert_eq!((said.code, said.main()), (RETENTION, "locked"));
    assert!(said.line("locked") > 115 * MB);
    assert!(said.line("trimmable") < MB, "{}", said.value["ledger"]);
    let trim = output(harness::ebb().args(["trim", "--dry-run", "--json", &subject.pid()]));
    let trim: serde_json::Value = serde_json::from_slice(&trim.stdout).expect("JSON");
    let returns = trim["processes"][0]["predicted"]["returns"].as_u64();
    assert!(returns.is_some_and(|returns| returns < MB), "{trim}");
}

#[test]
fn what_is_written_to_a_private_memfd_is_no_shared_memory() {
    let subject = Subject::start(&mut evidence("private-memfd"));
    let said = Said::of(&subject);
    assert_eq!((said.code, said.main()), (NOT_HEAP, "anonymous"));
    assert_eq!(said.line("shared-memory"), 0);
}

/// A preloaded jemalloc in a file of its own, which `change` then takes away.
fn preloaded(change: impl FnOnce(&Path)) -> Said {
    let folder = harness::folder();
    let library = folder.path().join("libown.so");
    harness::copy_program(&harness::jemalloc(), &library);
    let subject = Subject::start(evidence("burst").env("LD_PRELOAD", &library));
    change(&library);
    Said::of(&subject)
}

#[test]
fn a_preloaded_library_that_lost_its_name_is_read() {
    let changes: [fn(&Path); 2] = [
        |library| std::fs::remove_file(library).expect("to remove it"),
        // As an upgrade does: another file takes the name.
        |library| {
            let other = library.with_extension("new");
            std::fs::write(&other, "another file").expect("to write");
            std::fs::rename(&other, library).expect("to rename it");
        },
    ];
    for change in changes {
        let said = preloaded(change);
        assert!(
            !said.sentence().contains("Another allocator does not change"),
            "{}",
            said.sentence()
        );
        if nix::unistd::Uid::effective().is_root() {
            assert!(said.reader().starts_with("jemalloc"), "{}", said.sentence());
            assert_eq!((said.code, said.main()), (RETENTION, "kept"));
        } else {
            assert_eq!(said.code, NOT_ENOUGH, "only root opens what is mapped");
        }
    }
}

/// A program that gets its memory from an allocator in a library of its own.
fn with_engine(library: &Path) -> Said {
    let mut command = evidence("engine");
    command
        .arg(library)
        // The archive was made for programs, whose libraries have more room.
        .env("GLIBC_TUNABLES", "glibc.rtld.optional_static_tls=16384");
    Said::of(&Subject::start(&mut command))
}

#[test]
fn an_allocator_inside_a_library_is_read_where_a_reader_knows_it() {
    let said = with_engine(&engine(
        "engine-jemalloc.so",
        &["-l:libjemalloc_pic.a", "-lm", "-lstdc++", "-Wl,--exclude-libs,ALL"],
    ));
    assert!(
        said.reader().contains("jemalloc 5") && said.reader().contains("in engine-jemalloc.so"),
        "{}: {}",
        said.reader(),
        said.sentence()
    );
    assert_live(&said, 55 * MB);
}

#[test]
fn an_allocator_inside_a_library_that_no_reader_knows_is_not_told_apart() {
    let said = with_engine(&engine("engine-unknown.so", &["-DUNKNOWN"]));
    assert_eq!(said.code, NOT_ENOUGH, "{}", said.sentence());
    assert!(
        said.sentence().contains("rpmalloc of its own in engine-unknown.so"),
        "{}",
        said.sentence()
    );
    assert!(said.line("unread-heap") > 55 * MB);
}

#[test]
fn arrows_pool_is_read_by_the_allocator_inside() {
    let said = with_engine(&engine(
        "libarrow.so.1",
        &["-l:libjemalloc_pic.a", "-lm", "-lstdc++", "-Wl,--exclude-libs,ALL"],
    ));
    assert!(said.reader().contains("in libarrow.so.1"), "{}: {}", said.reader(), said.sentence());
    assert_live(&said, 55 * MB);
}

#[test]
fn arrows_pool_that_no_reader_knows_is_not_told_apart() {
    let said = with_engine(&engine("libarrow.so.2", &["-DUNKNOWN"]));
    assert_eq!(said.code, NOT_ENOUGH, "{}", said.sentence());
    assert!(said.sentence().contains("Arrow's own pool"), "{}", said.sentence());
    assert!(said.line("unread-heap") > 55 * MB);
    let next = said.value["verdict"]["next"].as_str().expect("a text");
    assert!(next.contains("ARROW_DEFAULT_MEMORY_POOL=system"), "{next}");
}

fn engine(name: &str, flags: &[&str]) -> PathBuf {
    let flags = [&["-shared", "-fPIC"], flags].concat();
    subjects::compiled(name, "engine.c", &flags)
}

#[test]
fn a_program_of_32_bits_is_named() {
    let flags = ["-m32", "-nostdlib", "-static", "-no-pie", "-fno-pie", "-fno-stack-protector"];
    let subject =
        Subject::start(&mut Command::new(subjects::compiled("narrow", "narrow.c", &flags)));
    let why = output(harness::ebb().args(["why", "-v", &subject.pid()]));
    assert_eq!(why.status.code(), Some(NOT_ENOUGH), "{}", stderr(&why));
    let text = stdout(&why);
    let verdict = text.lines().next().unwrap_or_default();
    assert!(verdict.contains("a 32-bit program"), "{verdict}");
    assert!(!text.contains("not loaded yet"), "{text}");
    let short = output(harness::ebb().args(["why", &subject.pid()]));
    let text = stdout(&short);
    assert!(text.contains("a 32-bit program"), "{text}");
}

#[test]
fn a_target_that_ends_during_the_look_is_said_to_have_ended() {
    for delay in 0..12 {
        let mut subject = Subject::start(&mut evidence("huge-pages-from-the-second-page"));
        let mut why = harness::ebb();
        why.args(["why", &subject.pid()]);
        let why = std::thread::scope(|scope| {
            let look = scope.spawn(|| output(&mut why));
            std::thread::sleep(Duration::from_millis(3 * delay));
            subject.0.kill().expect("to end it");
            subject.0.wait().expect("it ends");
            look.join().expect("the look")
        });
        let said = stdout(&why);
        match why.status.code() {
            Some(IN_USE) => assert!(said.starts_with("In use: "), "{said}"),
            Some(NOT_ENOUGH) => assert!(said.contains("ended while it was read"), "{said}"),
            // Before the look it was gone, or killed and not yet collected: documented as 64 as well.
            Some(64) => {
                let error = stderr(&why);
                let gone = error.contains("no process") || error.contains("is a zombie");
                assert!(gone, "{error}");
            }
            other => panic!("{other:?}: {said}{}", stderr(&why)),
        }
    }
}

#[test]
fn a_target_that_executes_other_programs_is_no_missing_right() {
    let subject = Subject::start(&mut evidence("executes"));
    for _ in 0..10 {
        let said = Said::of(&subject);
        assert!(matches!(said.code, IN_USE | NOT_ENOUGH), "{}: {}", said.code, said.sentence());
    }
}

#[test]
fn pages_that_ebbmalloc_returns_by_itself_are_no_retention() {
    let mut command = evidence("burst");
    command.env("LD_PRELOAD", subjects::preload("ebbmalloc"));
    let said = Said::of(&Subject::start(&mut command));
    assert_eq!(said.code, IN_USE, "{}", said.sentence());
    assert!(said.line("trimmable") < 8 << 20, "it is waited for: {}", said.value["ledger"]);
}
