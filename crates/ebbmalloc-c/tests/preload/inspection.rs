//! Tools that look at a process from outside or take its place in malloc: gdb on a live process and
//! on a core, valgrind, and the address sanitizer's runtime together with the preload.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use crate::harness::{Flavour, Outcome, Run, Running, Scratch, program, require};
use test_needs::{needs, skip};

const SIGABRT: i32 = 6;

fn gdb(target: [&str; 2], commands: &[&str]) -> Outcome {
    // Symbols from the network would make the test wait for it.
    Run::bare(require("gdb", "gdb"))
        .args(["-nx", "-batch", "-iex", "set debuginfod enabled off"])
        .args(target)
        .args(commands.iter().flat_map(|command| ["-ex", command]))
        .run()
        .succeeded()
}

fn ready() -> Running {
    let mut running = Run::program("inspected inspected stay").spawn();
    let mut stdout = BufReader::new(running.child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("the program speaks");
    assert_eq!(line, "ready\n");
    running
}

#[track_caller]
fn shows(outcome: &Outcome, part: &str) {
    assert!(outcome.stdout.contains(part), "{part}: {}", outcome.describe());
}

#[test]
fn gdb_attaches_and_allocates_in_the_process() {
    needs!("gdb");
    let running = ready();
    assert!(running.maps_library(running.id()));
    let outcome = gdb(
        ["-p", &running.id().to_string()],
        &[
            "thread apply all backtrace 3",
            "print marker_block",
            "print (long)((unsigned long(*)(void*))malloc_usable_size)(marker_block) >= 100",
            "print ((void*(*)(unsigned long))malloc)(1000) != 0",
            "detach",
        ],
    );
    shows(&outcome, "Thread 4");
    shows(&outcome, "the tide is out");
    // gdb before 14 cannot set the registers of a processor with AMX, so it can call no function there.
    if outcome.stderr.contains("Couldn't write extended state status") {
        skip!("gdb cannot set this processor's registers");
    }
    shows(&outcome, "$2 = 1");
    shows(&outcome, "$3 = 1");
    // It goes on after gdb has left.
    let status = fs::read_to_string(format!("/proc/{}/status", running.id())).expect("it lives");
    assert!(!status.contains("State:\tZ"), "{status}");
}

/// Where the kernel put the core of a program that ran in FOLDER.
fn core_in(folder: &Path) -> Option<PathBuf> {
    fs::read_dir(folder)
        .ok()?
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("core")))
}

#[test]
fn core_dump_holds_the_heap() {
    needs!("gdb");
    let program = program("inspected", Flavour::Plain);
    let scratch = Scratch::new();
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    let core = if pattern.starts_with("core") {
        Run::program("inspected inspected abort")
            .through(["prlimit", "--core=unlimited"])
            .folder(scratch.path())
            .run()
            .killed_by(SIGABRT);
        core_in(scratch.path()).expect("the kernel wrote a core")
    } else {
        // Cores go to a handler of the machine's: gdb writes the same from the live process.
        let running = ready();
        let core = scratch.path().join("core");
        let command = format!("generate-core-file {}", core.display());
        gdb(["-p", &running.id().to_string()], &[&command]);
        core
    };
    let size = fs::metadata(&core).expect("the core").len();
    assert!(size < 1 << 30, "a core of {size} bytes holds the reservation");
    let outcome = gdb(
        [&program.display().to_string(), &core.display().to_string()],
        &["print marker_block", "info threads", "backtrace"],
    );
    shows(&outcome, "the tide is out");
    shows(&outcome, "main");
}

#[test]
fn valgrind_runs_and_finds_nothing() {
    needs!("valgrind");
    Run::preloaded(require("valgrind", "valgrind"))
        .args(["--error-exitcode=9", "--quiet"])
        .arg(program("inspected", Flavour::Plain))
        .arg("plain")
        .run()
        .passed();
}

/// The sanitizer's runtime is linked into the program, so its malloc comes first: the preload is
/// mapped, is not in charge, and must not disturb.
#[test]
fn sanitizer_in_the_program_stays_in_charge() {
    let program = program("inspected", Flavour::SanitizerStatic);
    not_in_charge(Run::preloaded(&program)).run().passed();
    overflow_is_seen(Run::preloaded(&program));
}

/// The sanitizer's runtime is a shared object, which must come before any other preload.
#[test]
fn sanitizer_beside_the_preload_stays_in_charge() {
    let program = program("inspected", Flavour::SanitizerShared);
    let found = Run::bare("cc").arg("-print-file-name=libasan.so").run();
    let runtime = PathBuf::from(found.succeeded().stdout.trim())
        .canonicalize()
        .expect("gcc's libasan.so: apt-get install libgcc-12-dev");
    let run = || Run::preloaded(&program).beside(runtime.clone(), true);
    not_in_charge(run()).run().passed();
    overflow_is_seen(run());
}

fn not_in_charge(run: Run) -> Run {
    run.env("EBB_TEST_NOT_IN_CHARGE", "1").arg("plain")
}

fn overflow_is_seen(run: Run) {
    let outcome = not_in_charge(run).arg("overflow").run();
    assert!(outcome.stderr.contains("heap-buffer-overflow"), "{}", outcome.describe());
}

/// The preload in front of the sanitizer's runtime, its check of the order switched off: the
/// program runs on the preload's malloc, which the runtime then wraps in part.
#[test]
fn sanitizer_behind_the_preload_runs() {
    not_in_charge(Run::preloaded(program("inspected", Flavour::SanitizerShared)))
        .env("ASAN_OPTIONS", "verify_asan_link_order=0:detect_leaks=0")
        .run()
        .passed();
}
