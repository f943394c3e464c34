//! What `ebb run` starts: the program itself, in its place, with the right environment.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use test_needs::needs;

use crate::harness::*;

/// Prints the allocator that python3 has mapped.
const MAPPED: &str = "print('mapped' if LIBRARY in open('/proc/self/maps').read() else 'missing')";

#[track_caller]
fn assert_mapped(allocator: &str, library: &Path) {
    // /proc shows the target of a link.
    let file = library.canonicalize().expect("the library");
    let code = MAPPED.replace("LIBRARY", &format!("{:?}", file.display().to_string()));
    let output = run(&["--allocator", allocator, "--", "python3", "-c", &code]);
    assert_eq!(stdout(&output), "mapped", "{allocator}: {}", stderr(&output));
    assert_eq!(stderr(&output), "");
}

#[test]
fn peers_are_found_and_loaded() {
    needs!("libmimalloc2.0", "libtcmalloc-minimal4");
    assert_mapped("jemalloc", &jemalloc());
    assert_mapped("mimalloc", &peer("libmimalloc.so.2", "libmimalloc2.0"));
    assert_mapped("tcmalloc", &peer("libtcmalloc_minimal.so.4", "libtcmalloc-minimal4"));
}

#[test]
fn a_path_is_taken_as_it_is() {
    let library = jemalloc();
    assert_mapped(library.to_str().unwrap(), &library);
}

#[test]
fn ebbmalloc_is_the_default() {
    let library = ebbmalloc();
    let line = words("run --conf purge:off sh -c 'echo $LD_PRELOAD $EBB_CONF'");
    let output = output(ebb().env("EBB_LIB", &library).args(line));
    let expected = format!("{} purge:off", library.display());
    assert_eq!(stdout(&output), expected, "{}", stderr(&output));
    assert_mapped(library.to_str().unwrap(), &library);
}

#[test]
fn ebbmalloc_is_found_where_an_installation_keeps_it() {
    for (program, library) in
        [("bin/ebb", "lib/libebbmalloc.so"), ("ebb", "libebbmalloc.so"), ("debug/ebb", "release/libebbmalloc.so")]
    {
        let folder = folder();
        let at = |path: &str, from: &Path| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("created");
            copy_program(from, &path);
            path
        };
        let ebb = at(program, Path::new(env!("CARGO_BIN_EXE_ebb")));
        let library = at(library, &ebbmalloc());
        let mut command = Command::new(ebb);
        command.args(words("run sh -c 'echo $LD_PRELOAD'"));
        let output = output(command.env_remove("EBB_LIB").env_remove("LD_PRELOAD"));
        assert_eq!(stdout(&output), library.display().to_string(), "{}", stderr(&output));
    }
}

#[test]
fn the_program_takes_our_place() {
    let line = words("run -a jemalloc -- sh -c 'echo $$; exit 7'");
    let mut subject = Subject::spawn(ebb().args(line));
    assert_eq!(subject.line(), subject.pid());
    assert_eq!(subject.child.wait().expect("its end").code(), Some(7));

    let killed = run(&["-a", "jemalloc", "sh", "-c", "kill -TERM $$"]);
    assert_eq!(killed.status.signal(), Some(15));
}

#[test]
fn arguments_arrive_as_they_are() {
    let output = run(&["-a", "glibc", "printf", "%s|", "--", "-a", "", "a b", "--verify"]);
    assert_eq!(stdout(&output), "--|-a||a b|--verify|");
}

#[test]
fn what_was_preloaded_stays_behind_ours() {
    let folder = folder();
    let other = compile(&folder, "cc", "other.so", "int other;", &["-shared", "-fPIC"]);
    let jemalloc = jemalloc();
    let echo = ["sh", "-c", "echo $LD_PRELOAD"];
    let before = format!("{} libmimalloc.so.2", other.display());

    let ours = output(ebb().env("LD_PRELOAD", &before).args(["run", "-a", "jemalloc"]).args(echo));
    assert_eq!(stdout(&ours), format!("{}:{}", jemalloc.display(), other.display()));
    assert!(stderr(&ours).contains("note: libmimalloc.so.2 is removed"), "{}", stderr(&ours));

    let system = output(ebb().env("LD_PRELOAD", &before).args(["run", "-a", "glibc"]).args(echo));
    assert_eq!(stdout(&system), other.display().to_string());
}

#[test]
fn settings_go_into_the_allocators_own_variable() {
    let conf = "--conf dirty_decay_ms:1000,narenas:1 --env A=b=c";
    let line = words(&format!("run -a jemalloc {conf} sh -c 'echo $MALLOC_CONF $A'"));
    let output = output(ebb().env("MALLOC_CONF", "background_thread:true").args(line));
    assert_eq!(stdout(&output), "background_thread:true,dirty_decay_ms:1000,narenas:1 b=c");
}

#[test]
fn settings_reach_the_allocator() {
    let output = run(&["-a", "jemalloc", "--conf", "confirm_conf:true,narenas:3", "/bin/true"]);
    assert!(stderr(&output).contains("narenas:3"), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn scripts_are_started_through_their_interpreters() {
    let folder = folder();
    let maps = "grep -q jemalloc /proc/self/maps && echo mapped";
    for (name, first_line) in [
        ("plain", "#!/bin/sh\n"),
        ("by-env", "#!/usr/bin/env sh\n"),
        ("split", "#!/usr/bin/env -S sh -e\n"),
        ("none", ""),
    ] {
        let script = script(&folder, name, &format!("{first_line}{maps}\n"));
        let output = run(&["-a", "jemalloc", script.to_str().unwrap()]);
        assert_eq!(stdout(&output), "mapped", "{name}: {}", stderr(&output));
    }
    let chained = format!("#!{}\n", folder.path().join("plain").display());
    let chained = script(&folder, "chained", &chained);
    let output = run(&["-a", "jemalloc", chained.to_str().unwrap()]);
    assert_eq!(stdout(&output), "mapped", "{}", stderr(&output));
}

#[test]
fn a_wrapper_is_as_good_as_the_program() {
    let grep = "grep -c jemalloc /proc/self/maps >/dev/null && echo mapped";
    let output = run(&["-a", "jemalloc", "env", "X=1", "nice", "sh", "-c", grep]);
    assert_eq!(stdout(&output), "mapped", "{}", stderr(&output));
}

#[test]
fn a_musl_program_runs_on_ebbmalloc() {
    needs!("musl-tools");
    let folder = folder();
    let program = compile(&folder, "musl-gcc", "program", ALLOCATING, &[]);
    let library = ebbmalloc();
    let output = run(&["-a", library.to_str().unwrap(), program.to_str().unwrap()]);
    assert_eq!(stdout(&output), "allocated", "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(5));
}

/// The masks of ignored and blocked signals that the program finds.
fn masks(ebb: &mut Command) -> (u64, u64) {
    let output = output(ebb.args(["run", "-a", "glibc", "cat", "/proc/self/status"]));
    let text = stdout(&output);
    let mask = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)).expect(name);
        u64::from_str_radix(value.trim(), 16).expect("a mask")
    };
    (mask("SigIgn:"), mask("SigBlk:"))
}

#[test]
fn signals_are_ignored_and_blocked_as_our_parent_had_them() {
    let bit = |signal: i32| 1_u64 << (signal - 1);
    let (ignored, blocked) = masks(&mut ebb());
    assert_eq!(ignored & bit(libc::SIGPIPE), 0);
    assert_eq!(blocked, 0);

    let mut changed = ebb();
    // SAFETY: two calls that only change the signal state of the new process.
    unsafe {
        changed.pre_exec(|| {
            libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            let mut set = std::mem::zeroed();
            libc::sigaddset(&mut set, libc::SIGUSR1);
            libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            Ok(())
        });
    }
    let (ignored, blocked) = masks(&mut changed);
    assert_eq!(ignored & bit(libc::SIGPIPE), bit(libc::SIGPIPE));
    assert_eq!(blocked, bit(libc::SIGUSR1));
}

/// Results of a trial in which one variant is recommended, at a CPU time against the same without PYTHONMALLOC.
fn results(cpu_s: f64) -> tempfile::NamedTempFile {
    use ebb_trial::results::{Column, Figure, Trial};
    let variant = |name: &str, python: &str, cpu_s: f64| {
        let figure = Figure { n: 1, median: cpu_s, min: cpu_s, max: cpu_s, versus_first: None };
        serde_json::json!({
            "name": name, "allocator": "jemalloc", "library": null, "unavailable": null, "runs": [],
            "env": serde_json::from_str::<serde_json::Value>(python).unwrap(),
            "summary": {"runs": 1, "errors": 0, "figures": {"cpu": serde_json::to_value(figure).unwrap()}},
        })
    };
    let trial = serde_json::json!({
        "format": 1, "ebb_version": "0", "started": "2026-01-02T03:04:05Z", "seconds": 1.0,
        "workload": {"name": "x", "description": "", "profile": null, "vars": {}, "cycles": {}},
        "machine": {}, "repetitions": 1, "interval_ms": 100, "metric": "rss", "interrupted": false,
        "variants": [
            variant("plain", r#"{"MALLOC_CONF": "narenas:1"}"#, 10.0),
            variant("best", r#"{"MALLOC_CONF": "narenas:1", "PYTHONMALLOC": "malloc"}"#, cpu_s),
        ],
        "verdict": {"kind": "recommend", "variant": "best", "sentence": ""},
    });
    // It is what ebb compare writes, as far as it goes.
    let read: Trial = serde_json::from_value(trial.clone()).unwrap();
    assert!(read.variants[0].summary.as_ref().unwrap().median(Column::Cpu).is_some());
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), trial.to_string()).unwrap();
    file
}

#[test]
fn a_trials_results_say_what_to_run_on() {
    let library = jemalloc().display().to_string();
    for (cpu_s, runs_on, note) in [
        (10.2, "narenas:1 malloc", "note: best: the trial recommends it; PYTHONMALLOC costs +2 % CPU time"),
        (14.0, "narenas:1", "PYTHONMALLOC is left out: it costs +40 % CPU time"),
    ] {
        let file = results(cpu_s);
        let shown = "sh -c 'echo $LD_PRELOAD $MALLOC_CONF $PYTHONMALLOC'";
        let line = words(&format!("run --from {} -- {shown}", file.path().display()));
        let output = output(ebb().args(line));
        assert_eq!(stdout(&output), format!("{library} {runs_on}"), "{}", stderr(&output));
        assert!(stderr(&output).contains(note), "{}", stderr(&output));
    }
    let missing = Finished::by(ebb().args(words("run --from /nowhere.json -- true")));
    missing.expect(64, &[], &["/nowhere.json"]);
}

/// A Python program that starts `cat` by its name, and says its pid. It ends with its parent.
const PARENT: &str =
    "import subprocess as s; c = s.Popen(['cat'], stdin=s.PIPE); print('ready', c.pid, flush=True); c.wait()";

/// `ebb run ARGUMENTS -- python3 -c CODE`, with a cache of its own.
fn command(cache: &std::path::Path, arguments: &[&str], code: &str) -> Command {
    let mut command = ebb();
    command.arg("run").args(arguments).args(["--", "python3", "-c", code]);
    command.env("XDG_CACHE_HOME", cache).env("EBB_LIB", ebbmalloc());
    command
}

fn environ(pid: &str) -> String {
    let environ = std::fs::read(format!("/proc/{pid}/environ")).expect("its environment");
    String::from_utf8_lossy(&environ).replace('\0', "\n")
}

#[test]
fn the_child_alone_is_on_it() {
    let cache = folder();
    let arguments = ["--child", "cat", "--conf", "narenas:1", "--env", "ONLY=it's here"];
    let parent = Subject::start(&mut command(cache.path(), &arguments, PARENT));
    let (own, child) = (parent.child.id().to_string(), parent.pid());
    // The wrapper is a shell, with the name of its file, until it has become the program.
    for _ in 0..3000 {
        let program = std::fs::read_link(format!("/proc/{child}/exe"));
        if program.is_ok_and(|it| it.ends_with("cat")) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let preload = format!("LD_PRELOAD={}", ebbmalloc().display());
    let lines = environ(&child);
    for line in [preload.as_str(), "EBB_CONF=narenas:1", "ONLY=it's here"] {
        assert!(lines.lines().any(|it| it == line), "{line}: {lines}");
    }
    let lines = environ(&own);
    for absent in ["LD_PRELOAD=", "EBB_CONF=", "ONLY="] {
        assert!(!lines.contains(absent), "{lines}");
    }
    let check = Finished::by(ebb().args(["check", "--json", &own]));
    let value = check.json();
    let of = |pid: &str| {
        let processes = value["processes"].as_array().expect("processes");
        let process = processes.iter().find(|it| it["pid"] == pid.parse::<u32>().expect("a pid"));
        process.unwrap_or_else(|| panic!("{}", check.all()))["in_charge"].clone()
    };
    assert_eq!((of(&own), of(&child)), (Value::Bool(false), Value::Bool(true)), "{}", check.all());
}

#[test]
fn verify_judges_the_child_alone() {
    let cache = folder();
    let verify = |code: &str| {
        let arguments = ["--child", "sleep", "--verify", "--json"];
        let done = Finished::by(&mut command(cache.path(), &arguments, code));
        let said: Value = serde_json::from_str(&done.stderr).unwrap_or_else(|_| panic!("{}", done.all()));
        said
    };
    let said = verify("import subprocess as s; s.run(['sleep', '0.5'])");
    assert_eq!(said["in_charge"], true, "{said}");
    assert_eq!(said["processes"].as_array().map(Vec::len), Some(1), "{said}");
    // By its path it does not pass the wrapper; the report shows it.
    let said = verify("import subprocess as s; s.run(['/bin/sleep', '0.5'])");
    assert_eq!(said["in_charge"], false, "{said}");
    let said = verify("pass");
    assert_eq!(said["in_charge"], Value::Null, "{said}");
}

#[test]
fn a_setting_without_an_allocator() {
    let cache = folder();
    let code = "import os, subprocess as s; s.run(['env']); print(os.environ.get('MALLOC_ARENA_MAX'))";
    let arguments = ["-a", "glibc", "--env", "MALLOC_ARENA_MAX=2", "--child", "env"];
    let done = Finished::by(&mut command(cache.path(), &arguments, code));
    done.expect(0, &["MALLOC_ARENA_MAX=2", "None\n"], &[]);
}

#[test]
fn what_cannot_be_wrapped_is_refused_before_the_start() {
    let cache = folder();
    let refused = |arguments: &[&str]| output(&mut command(cache.path(), arguments, "print('started')"));
    assert_refused(&refused(&["--child", "no-such-command"]), 127, &["no-such-command"]);
    let output = refused(&["--child", "/bin/sleep"]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(64), ""), "{}", stderr(&output));
    let mut without = command(cache.path(), &["--child", "sleep"], "print('started')");
    let without = crate::harness::output(without.env("XDG_CACHE_HOME", "/proc/none"));
    assert_refused(&without, 74, &["the wrapper of sleep", "XDG_CACHE_HOME"]);
}
