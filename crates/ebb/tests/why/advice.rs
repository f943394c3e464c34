//! What `ebb why` and `ebb trim` advise, tried: a remedy must return at least half of the bytes that it is
//! advised for, on a process in the state in which it is advised.
//!
//! The states are those of `tests/fixtures/advice/states.c`. Tests that build for long or need a JDK, Go or
//! pyarrow run with `EBB_LONG` only.

use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::harness::subjects::{self, preload};
use crate::harness::{self, Finished, Subject, each, is_long, why_json};

/// Longer than any allocator is asked to wait.
const PATIENCE: Duration = Duration::from_secs(20);

type Settings<'a> = &'a [(&'a str, &'a str)];

fn resident(process: &Subject) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id)).expect("alive");
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kb = line.and_then(|line| line.split_whitespace().nth(1));
    kb.expect("a figure").parse::<u64>().expect("a number") * 1024
}

/// The bytes of the finding whose remedy has these words, as soon as there is one.
fn advised(process: &Subject, words: &str) -> u64 {
    let began = Instant::now();
    loop {
        let (_, said) = why_json(&process.pid());
        let findings = said["findings"].as_array().expect("findings");
        let remedies = || findings.iter().map(|it| it["remedy"].as_str().unwrap_or(""));
        if let Some(found) = remedies().position(|remedy| remedy.contains(words)) {
            return findings[found]["bytes"].as_u64().expect("bytes");
        }
        let remedies: Vec<&str> = remedies().collect();
        assert!(began.elapsed() < PATIENCE, "{words}: {remedies:#?}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Follows the advice with these words: has the process do what it was started for or, with `again`, starts another one.
/// `name` is for the table in docs/causes.md.
#[track_caller]
fn helps(name: &str, mut process: Subject, words: &str, again: Option<&mut Command>) {
    let (advised_for, before) = (advised(&process, words), resident(&process));
    let most = before.saturating_sub(advised_for / 2);
    let process = match again {
        Some(again) => Subject::start(again),
        None => {
            process.tell();
            process
        }
    };
    let began = Instant::now();
    while resident(&process) > most && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(Duration::from_millis(500));
    let after = resident(&process);
    let tried = format!("{name}: before {before}, advised for {advised_for}, after {after}");
    eprintln!("{tried}");
    assert!(after <= most, "{tried}");
}

/// A command in a quiet environment.
fn quiet(mut command: Command, settings: Settings) -> Command {
    for name in ["LD_PRELOAD", "MALLOC_CONF", "EBB_CONF", "PYTHONMALLOC"] {
        command.env_remove(name);
    }
    command.envs(settings.iter().copied());
    command
}

/// The program of states in `state`, under an allocator; it does `remedy` when it reads a line.
fn states(allocator: &str, state: &str, remedy: &str, settings: Settings) -> Command {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = harness::folder();
        let source = include_str!("../fixtures/advice/states.c");
        harness::compile(&folder, "gcc", "states", source, &["-O1", "-pthread"]);
        folder
    });
    let mut command = Command::new(folder.path().join("states"));
    command.args([state, remedy]);
    let mut command = quiet(command, settings);
    if allocator != "glibc" {
        command.env("LD_PRELOAD", preload(allocator));
    }
    command
}

/// A C program and the advice to it.
struct Advice<'a> {
    allocator: &'a str,
    state: &'a str,
    /// What the program does when it reads a line.
    remedy: &'a str,
    settings: Settings<'a>,
    words: &'a str,
    /// The settings of the start that is advised; without them the advice is the program's remedy.
    again: Option<Settings<'a>>,
}

const fn start<'a>(
    allocator: &'a str,
    state: &'a str,
    settings: Settings<'a>,
    words: &'a str,
    again: Settings<'a>,
) -> Advice<'a> {
    Advice { allocator, state, remedy: "", settings, words, again: Some(again) }
}

const fn call<'a>(
    allocator: &'a str,
    state: &'a str,
    remedy: &'a str,
    settings: Settings<'a>,
    words: &'a str,
) -> Advice<'a> {
    Advice { allocator, state, remedy, settings, words, again: None }
}

const BACKGROUND: &str = "background_thread:true,dirty_decay_ms:1000";
const LAZY: &str = "background_thread:true,dirty_decay_ms:100,muzzy_decay_ms:-1";
const PROMPT: &str = "background_thread:true,dirty_decay_ms:100,muzzy_decay_ms:0";
const SMALL: &str = "tcache_max:4096,background_thread:true,dirty_decay_ms:1000";
const DECOMMIT: (&str, &str) = ("TCMALLOC_AGGRESSIVE_DECOMMIT", "t");
const CACHES: (&str, &str) = ("TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES", "1048576");

#[test]
fn c_programs_by_allocator() {
    let mimalloc = Advice {
        // Its threads collect what they freed.
        remedy: "collect-each",
        ..start("mimalloc", "burst", &[], "MIMALLOC_DECOMMIT_DELAY", &[("MIMALLOC_DECOMMIT_DELAY", "0")])
    };
    let cases = [
        ("malloc_trim(0)", call("glibc", "burst", "trim", &[], "malloc_trim(0) in the program")),
        (
            "MALLOC_TRIM_THRESHOLD_=131072",
            start("glibc", "ends", &[], "MALLOC_TRIM_THRESHOLD_=131072", &[("MALLOC_TRIM_THRESHOLD_", "131072")]),
        ),
        (BACKGROUND, start("jemalloc", "burst", &[], BACKGROUND, &[("MALLOC_CONF", BACKGROUND)])),
        (
            "dirty_decay_ms:1000 for -1",
            start(
                "jemalloc",
                "burst",
                &[("MALLOC_CONF", "dirty_decay_ms:-1")],
                BACKGROUND,
                &[("MALLOC_CONF", BACKGROUND)],
            ),
        ),
        ("arena.4096.purge", call("jemalloc", "burst", "purge", &[], "dirty pages")),
        (
            "background_thread after a fork",
            call("jemalloc", "child", "thread", &[("MALLOC_CONF", BACKGROUND)], "mallctl \"background_thread\""),
        ),
        (
            "muzzy_decay_ms:0",
            start("jemalloc", "burst", &[("MALLOC_CONF", LAZY)], "muzzy_decay_ms:0", &[("MALLOC_CONF", PROMPT)]),
        ),
        (SMALL, start("jemalloc", "caches", &[], SMALL, &[("MALLOC_CONF", SMALL)])),
        ("MIMALLOC_DECOMMIT_DELAY", mimalloc),
        (DECOMMIT.0, start("tcmalloc", "burst", &[], "TCMALLOC_AGGRESSIVE_DECOMMIT=t", &[DECOMMIT])),
        (
            "ReleaseFreeMemory() after a rate of 0",
            call("tcmalloc", "burst", "release", &[("TCMALLOC_RELEASE_RATE", "0")], "free spans are never returned"),
        ),
        ("ReleaseFreeMemory()", call("tcmalloc", "burst", "release", &[], "MallocExtension::ReleaseFreeMemory()")),
        (
            CACHES.0,
            start(
                "tcmalloc",
                "burst",
                &[DECOMMIT],
                "TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES=1048576",
                &[DECOMMIT, CACHES],
            ),
        ),
    ];
    let named = cases.each_ref().map(|(name, case)| (*name, (*name, case)));
    each(&named, |(name, it)| {
        let process = Subject::start(&mut states(it.allocator, it.state, it.remedy, it.settings));
        if it.remedy == "purge" {
            let mut trim = harness::ebb();
            let said = Finished::by(trim.args(["trim", "--dry-run", &process.pid()])).all();
            assert!(said.contains("arena.4096.purge"), "{said}");
        }
        let mut again = it.again.map(|settings| states(it.allocator, it.state, "", settings));
        helps(name, process, it.words, again.as_mut());
    });
}

/// Python code, which then says that it is ready and waits.
fn python(code: &str, settings: Settings) -> Command {
    let mut command = Command::new("python3");
    let rest = "\nimport sys\nprint('ready', flush=True)\nsys.stdin.read()\n";
    command.arg("-c").arg(format!("{code}{rest}"));
    quiet(command, settings)
}

/// A start of Python code on ebbmalloc is advised.
#[track_caller]
fn helps_python(name: &str, code: &str, words: &str, settings: Settings) {
    let mut again = python(code, settings);
    again.env("LD_PRELOAD", preload("ebbmalloc"));
    helps(name, Subject::start(&mut python(code, &[])), words, Some(&mut again));
}

#[test]
fn python_objects_on_an_allocator_that_returns_pages() {
    let code = "made = [(float(i), str(i)) for i in range(600000)]\nkept = made[::400]\ndel made";
    let words = "ebbmalloc returns the pages of its free objects";
    helps_python("a start on ebbmalloc", code, words, &[]);
}

#[test]
fn arrow_on_malloc() {
    let import = || Command::new("python3").args(["-c", "import pyarrow"]).output();
    if !is_long() || !import().is_ok_and(|output| output.status.success()) {
        return;
    }
    let code = "import pyarrow as pa\n\
                t = [pa.array(['text %d' % i * 4 for i in range(3000)]) for _ in range(400)]\n\
                kept = t[::40]\ndel t";
    let pool = [("ARROW_DEFAULT_MEMORY_POOL", "system")];
    helps_python("Arrow on ebbmalloc", code, "ARROW_DEFAULT_MEMORY_POOL=system", &pool);
}

#[test]
fn mimalloc_in_a_rust_program_that_purges_at_once() {
    if !is_long() {
        return;
    }
    let burst = || subjects::command("rust:mimalloc:burst");
    let mut again = burst();
    again.env("MIMALLOC_PURGE_DELAY", "0");
    let words = "MIMALLOC_PURGE_DELAY=0";
    helps(words, Subject::start(&mut burst()), words, Some(&mut again));
}

const MB: u64 = 1_000_000;
/// Whatever the heap's size: the allocator's own pages, buffers of the C library.
const LEEWAY_BYTES: u64 = 600_000;
/// How long after the last free: at once, and when the purger has looked once.
const MOMENTS: [Duration; 2] = [Duration::ZERO, Duration::from_secs(1)];

/// Bytes of memory of its own.
fn anonymous(process: &Subject) -> u64 {
    let path = format!("/proc/{}/smaps_rollup", process.id);
    let text = std::fs::read_to_string(path).expect("smaps_rollup");
    let line = text.lines().find_map(|line| line.strip_prefix("Anonymous:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    1024 * kilobytes.expect("a size").trim().parse::<u64>().expect("a number")
}

/// What was foretold, the whole heap as read, and what malloc_trim returned.
fn foretold_and_returned(case: &str, moment: Duration) -> (serde_json::Value, u64) {
    let stop = tempfile::NamedTempFile::new().expect("a file");
    stop.as_file().set_len(4096).expect("its length");
    let mut command = subjects::command(&format!("returns:{case}"));
    command.arg(stop.path()).env("LD_PRELOAD", subjects::preload("ebbmalloc"));
    let mut process = Subject::start(&mut command);
    std::thread::sleep(moment);
    // As it is right now, whatever the pace of this machine: the purger does not run on meanwhile.
    process.signal(Signal::SIGSTOP);
    let (_, said) = why_json(&process.pid());
    let heap = said["snapshot"]["processes"][0]["heap"].clone();
    let before = anonymous(&process);
    // Of what works each thread completes one operation, however long the machine takes for it.
    stop.as_file().write_all_at(&[1], 0).expect("to write");
    process.signal(Signal::SIGCONT);
    process.tell();
    assert_eq!(process.line(), "trimmed", "{case}");
    (heap, before.saturating_sub(anonymous(&process)))
}

/// Each case, and how many MB return at once in it, at least and at most.
#[test]
fn as_much_is_said_to_return_as_returns() {
    let cases = [
        // Free bytes next to live ones.
        ("pinned", 0..=2),
        // A part of the pages is free.
        ("few-live", 5..=20),
        ("kilobytes", 50..=90),
        ("slots-over-pages", 5..=70),
        // Right after the last free of a burst.
        ("all-freed", 90..=110),
        ("nothing-freed", 0..=1),
        ("large", 40..=50),
        // A process at work.
        ("busy", 20..=200),
    ];
    let named = cases.each_ref().map(|(case, returns)| (*case, (*case, returns.clone())));
    each(&named, |(case, returns)| {
        for moment in MOMENTS {
            let (heap, returned) = foretold_and_returned(case, moment);
            // What the purger returned before is not there to be foretold.
            let least = if moment.is_zero() { returns.start() * MB } else { 0 };
            assert!(
                (least..=returns.end() * MB).contains(&returned),
                "{case}: returned {returned}, and the case is to be about {returns:?} MB"
            );
            let foretold = heap["trimmable"].as_u64().expect("a figure");
            let leeway = LEEWAY_BYTES.max(returned / 50);
            assert!(
                foretold.abs_diff(returned) <= leeway,
                "{case} after {moment:?}: {foretold} B foretold, {returned} B returned: {heap:#}"
            );
        }
    });
}
