//! The heap profile as its readers see it: dumps of programs in several languages, read by jeprof and by
//! Go's pprof, name the right functions with the right bytes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Flavour, Outcome, Run, Scratch, archive, library, program, program_with, require};
use test_needs::needs;

/// A mean interval small enough for thousands of samples: an estimate of 20 MB from 4096 bytes a sample
/// has a standard deviation of 1.4 %. Six of those are allowed.
const SAMPLING: &str = "prof:true,prof_final:true,lg_prof_sample:12";
const ERROR: f64 = 0.09;

/// Runs PROGRAM with a profile, which it leaves in `scratch`.
fn profiled(program: &Path, arguments: &[&str], settings: &str, scratch: &Scratch) -> Outcome {
    Run::preloaded(program).args(arguments).env("MALLOC_CONF", settings).folder(scratch.path()).run()
}

/// The dumps in a folder, in the order of their names.
fn dumps(scratch: &Scratch) -> Vec<PathBuf> {
    let entries = fs::read_dir(scratch.path()).expect("the scratch folder is there");
    let mut dumps: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|end| end == "heap"))
        .collect();
    dumps.sort();
    dumps
}

/// What a reader says of a dump: lines of `flat flat% sum% cum cum% function`, figures in bytes.
fn lines_of(reader: &str, package: &str, arguments: &[&str], files: [&Path; 2]) -> String {
    let told = Command::new(require(reader, package))
        .args(arguments)
        .args(files)
        .env_remove("LD_PRELOAD")
        .output()
        .expect("the reader can be run");
    let text = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(
        told.status.success() && text.lines().count() > 1,
        "{reader}: {text}\n{}",
        String::from_utf8_lossy(&told.stderr)
    );
    text
}

/// Bytes of a function and what it called, as jeprof reads the dump.
fn by_jeprof(program: &Path, dump: &Path, option: &str) -> impl Fn(&str) -> f64 + use<> {
    let arguments = ["--text", "--show_bytes", option];
    let text = lines_of("jeprof", "libjemalloc-dev", &arguments, [program, dump]);
    move |function| cumulative(&text, function, "")
}

/// The command of docs/profiling.md that makes a dump one for pprof.
fn conversion() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/profiling.md");
    let page = fs::read_to_string(page).expect("the page on profiling");
    let (_, rest) = page.split_once("```awk\n").expect("the program for awk");
    rest.split_once("```").expect("its end").0.to_owned()
}

/// Bytes of a function and what it called, as Go's pprof reads the dump.
fn by_pprof(program: &Path, dump: &Path) -> impl Fn(&str) -> f64 + use<> {
    let made = Command::new(require("awk", "mawk")).arg(conversion()).arg(dump).output().expect("awk can be run");
    let converted = dump.with_extension("pprof");
    fs::write(&converted, made.stdout).expect("a file in the scratch folder");
    let arguments = ["tool", "pprof", "-top", "-unit=b", "-nodecount=500"];
    let text = lines_of("go", "golang-go", &arguments, [program, &converted]);
    move |function| cumulative(&text, function, "B")
}

fn cumulative(text: &str, function: &str, unit: &str) -> f64 {
    let named =
        |line: &&str| line.split_whitespace().last() == Some(function) || line.contains(&format!(" {function}("));
    let line = text.lines().find(named);
    line.and_then(|line| line.split_whitespace().nth(3))
        .and_then(|figure| figure.strip_suffix(unit).unwrap_or(figure).parse().ok())
        .unwrap_or_else(|| panic!("{function} is not in\n{text}"))
}

#[track_caller]
fn near(found: f64, expected: f64) {
    assert!((found / expected - 1.0).abs() < ERROR, "{found} instead of {expected}");
}

#[test]
fn c_functions_have_their_bytes() {
    needs!("libjemalloc-dev", "golang-go");
    let scratch = Scratch::new();
    let program = program("profiled", Flavour::Plain);
    profiled(&program, &["live"], SAMPLING, &scratch).passed();
    let dumps = dumps(&scratch);
    assert_eq!(dumps.len(), 1);
    let name = dumps[0].file_name().expect("a name").to_string_lossy();
    assert!(name.starts_with("jeprof.") && name.ends_with(".0.f.heap"), "{name}");
    let jeprof = by_jeprof(&program, &dumps[0], "--inuse_space");
    let pprof = by_pprof(&program, &dumps[0]);
    for function in ["small_block", "middle_block", "large_block"] {
        near(jeprof(function), 20e6);
        near(pprof(function), 20e6);
    }
    near(jeprof("main"), 60e6);
}

#[test]
fn functions_without_frame_pointers_and_in_musl_have_them_too() {
    needs!("libjemalloc-dev", "musl-tools");
    let scratch = Scratch::new();
    let program = program_with("profiled", Flavour::Musl, &["-fomit-frame-pointer", "-O2"]);
    profiled(&program, &["live"], SAMPLING, &scratch).passed();
    let jeprof = by_jeprof(&program, &dumps(&scratch)[0], "--inuse_space");
    for function in ["small_block", "large_block"] {
        near(jeprof(function), 20e6);
    }
}

/// As `ebb profile` asks for it, with no setting.
#[test]
fn a_profile_from_outside_begins_when_it_is_asked_for_and_ends_with_its_lease() {
    Run::preloaded(program("profiled", Flavour::Plain)).args(["leased"]).run().passed();
}

fn probes(file: &Path) -> String {
    let told = Command::new(require("readelf", "binutils")).arg("-nW").arg(file).output();
    String::from_utf8_lossy(&told.expect("readelf can be run").stdout).into_owned()
}

#[test]
fn a_tracer_at_the_probes_begins_a_profile() {
    let arguments = match cfg!(target_arch = "x86_64") {
        true => ["8@%rdi 8@%rsi 8@%rdx", "8@%rdi"],
        false => ["8@x0 8@x1 8@x2", "8@x0"],
    };
    for file in [library(), archive()] {
        let text = probes(file);
        for (name, arguments) in ["alloc", "free"].into_iter().zip(arguments) {
            let probe = text.split("Provider: otel_memory").find(|it| {
                it.contains(&format!("Name: {name}\n")) && it.contains(&format!("Arguments: {arguments}\n"))
            });
            assert!(probe.is_some(), "{name} in {}: {text}", file.display());
        }
    }
    let text = probes(library());
    let semaphores: Vec<&str> =
        text.split("Semaphore: ").skip(1).filter_map(|it| it.split_whitespace().next()?.strip_prefix("0x")).collect();
    assert!(semaphores.len() == 2 && semaphores[0] == semaphores[1], "{text}");
    let program = program("profiled", Flavour::Plain);
    Run::preloaded(program).args(["traced", semaphores[0]]).run().passed();
}

#[test]
fn a_profile_that_is_kept_is_published_from_the_start() {
    let program = program("profiled", Flavour::Plain);
    Run::preloaded(program).args(["kept_on"]).env("EBB_CONF", "profile:on").run().passed();
}

#[test]
fn a_thread_that_only_plays_ping_pong_is_counted_in_full() {
    needs!("libjemalloc-dev");
    let scratch = Scratch::new();
    let program = program("profiled", Flavour::Plain);
    let settings = "prof:true,prof_final:true,lg_prof_sample:15,prof_accum:true,prof_prefix:ever";
    profiled(&program, &["pingpong"], settings, &scratch).passed();
    let dump = &dumps(&scratch)[0];
    assert!(dump.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ever.")));
    near(by_jeprof(&program, dump, "--alloc_space")("small_block"), 200e6);
}

/// Whatever serves a request: a ration, a stack, a refill, or none of them.
#[test]
fn every_kind_of_request_is_counted_in_full() {
    needs!("libjemalloc-dev");
    let scratch = Scratch::new();
    let program = program("profiled", Flavour::Plain);
    let settings = "prof:true,prof_final:true,lg_prof_sample:15,prof_accum:true";
    profiled(&program, &["kinds"], settings, &scratch).passed();
    let found = by_jeprof(&program, &dumps(&scratch)[0], "--alloc_space");
    for function in ["tiny_block", "zeroed_block", "aligned_block", "middle_block"] {
        near(found(function), 200e6);
    }
}

#[test]
fn threads_that_ended_are_in_the_sums() {
    needs!("libjemalloc-dev");
    let scratch = Scratch::new();
    let program = program("profiled", Flavour::Plain);
    profiled(&program, &["threads"], SAMPLING, &scratch).passed();
    let dump = &dumps(&scratch)[0];
    // Half of it was freed by another thread.
    near(by_jeprof(&program, dump, "--inuse_space")("small_block"), 100_000.0 * 112.0);
    let text = fs::read_to_string(dump).expect("a dump");
    let totals = text.split("@ ").next().expect("a head");
    let threads = totals.lines().filter(|line| line.starts_with("  t") && !line.contains('*'));
    assert!(threads.count() >= 4, "{totals}");
}

#[test]
fn cpp_functions_have_their_bytes() {
    needs!("libjemalloc-dev");
    let scratch = Scratch::new();
    let program = program("operators", Flavour::Plain);
    profiled(&program, &["profiled"], SAMPLING, &scratch).passed();
    let dump = &dumps(&scratch)[0];
    let jeprof = by_jeprof(&program, dump, "--inuse_space");
    near(jeprof("make_node"), 20e6);
    near(jeprof("make_strings"), 10_000.0 * (2048.0 + 32.0));
}

#[test]
fn rust_functions_have_their_bytes() {
    needs!("libjemalloc-dev");
    let scratch = Scratch::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/profiled_rust.rs");
    let program = scratch.path().join("profiled_rust");
    let made = Command::new(require("rustc", "rustc"))
        .args(["--edition", "2024", "-O", "-g", "-o"])
        .args([&program, &source])
        .status();
    assert!(made.expect("rustc can be run").success());
    profiled(&program, &[], SAMPLING, &scratch).passed();
    near(by_jeprof(&program, &dumps(&scratch)[0], "--inuse_space")("rust_boxes"), 20e6);
}

/// CPython's functions are C's; those of its program are not in a C stack.
#[test]
fn cpython_has_its_bytes() {
    needs!("libjemalloc-dev");
    let scratch = Scratch::new();
    let python = Command::new(require("python3", "python3"))
        .args(["-c", "import sys; print(sys.executable)"])
        .output()
        .expect("python3 can be run");
    let python = PathBuf::from(String::from_utf8_lossy(&python.stdout).trim());
    let text = "kept = [bytes(50_000) for _ in range(400)]\nimport os\nprint('ok')\n\
        import ctypes\nctypes.CDLL(None).mallctl(b'prof.dump', None, None, None, 0)\nprint('ok')";
    profiled(&python, &["-c", text], SAMPLING, &scratch).passed();
    let dump = dumps(&scratch).into_iter().find(|dump| dump.to_string_lossy().contains(".m0."));
    let dump = dump.expect("a dump that was asked for");
    // 50 033 bytes in whole pages, and what the interpreter needs itself.
    let bytes = by_jeprof(&python, &dump, "--inuse_space")("PyEval_EvalCode");
    let kept = 400.0 * 53_248.0;
    assert!(bytes > kept * (1.0 - ERROR) && bytes < kept * 1.25, "{bytes}");
}

#[test]
fn the_control_tree_starts_stops_and_names() {
    let scratch = Scratch::new();
    let settings = "prof:true,prof_active:false,lg_prof_sample:14";
    let program = program("profiled", Flavour::Plain);
    let folder = scratch.path().to_string_lossy().into_owned();
    profiled(&program, &["control_tree", &folder], settings, &scratch).passed();
    assert!(dumps(&scratch).is_empty());
}

#[test]
fn leaks_are_told_and_can_be_an_error() {
    let scratch = Scratch::new();
    let program = program("profiled", Flavour::Plain);
    let settings = "prof:true,prof_final:true,prof_leak:true,lg_prof_sample:12";
    let told = profiled(&program, &["live"], settings, &scratch).passed();
    let figure = told
        .stderr
        .split_once("Leak approximation summary: ~")
        .and_then(|(_, rest)| rest.split(' ').next())
        .and_then(|figure| figure.parse::<f64>().ok());
    near(figure.unwrap_or_else(|| panic!("{}", told.describe())), 60e6);
    let settings = "prof:true,prof_final:true,prof_leak_error:true,lg_prof_sample:12";
    let failed = profiled(&program, &["live"], settings, &scratch);
    assert_eq!(failed.status.and_then(|status| status.code()), Some(1), "{}", failed.describe());
}

#[test]
fn dumps_come_at_intervals_and_at_growth() {
    let scratch = Scratch::new();
    let program = program("profiled", Flavour::Plain);
    let settings = "prof:true,lg_prof_sample:12,lg_prof_interval:24,prof_gdump:true";
    profiled(&program, &["live"], settings, &scratch).passed();
    let dumps = dumps(&scratch);
    let count = |kind: &str| dumps.iter().filter(|dump| dump.to_string_lossy().contains(kind)).count();
    // 60 MB in intervals of 16 MiB.
    assert_eq!(count(".i"), 3, "{dumps:?}");
    assert!(count(".u") >= 3, "{dumps:?}");
}

#[test]
fn without_prof_there_is_no_file_and_no_sample() {
    let scratch = Scratch::new();
    let program = program("profiled", Flavour::Plain);
    let settings = "prof:false,prof_final:true,prof_leak:true,prof_active:true,prof_gdump:true";
    let outcome = profiled(&program, &["live"], settings, &scratch).passed();
    assert_eq!(outcome.stderr, "");
    assert!(dumps(&scratch).is_empty());
}
