//! `--child`: one program that the command starts is on the allocator, and nothing else.

use std::process::Command;

use serde_json::Value;

use crate::harness::*;

/// A Python program that starts `cat` by its name, and says its pid. It ends with its parent.
const PARENT: &str = "import subprocess as s; c = s.Popen(['cat'], stdin=s.PIPE); print('ready', c.pid, flush=True); c.wait()";

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
        let said: Value =
            serde_json::from_str(&done.stderr).unwrap_or_else(|_| panic!("{}", done.all()));
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
    let code =
        "import os, subprocess as s; s.run(['env']); print(os.environ.get('MALLOC_ARENA_MAX'))";
    let arguments = ["-a", "glibc", "--env", "MALLOC_ARENA_MAX=2", "--child", "env"];
    let done = Finished::by(&mut command(cache.path(), &arguments, code));
    done.expect(0, &["MALLOC_ARENA_MAX=2", "None\n"], &[]);
}

#[test]
fn what_cannot_be_wrapped_is_refused_before_the_start() {
    let cache = folder();
    let refused =
        |arguments: &[&str]| output(&mut command(cache.path(), arguments, "print('started')"));
    assert_refused(&refused(&["--child", "no-such-command"]), 127, &["no-such-command"]);
    let output = refused(&["--child", "/bin/sleep"]);
    assert_eq!(
        (output.status.code(), stdout(&output).as_str()),
        (Some(64), ""),
        "{}",
        stderr(&output)
    );
    let mut without = command(cache.path(), &["--child", "sleep"], "print('started')");
    let without = crate::harness::output(without.env("XDG_CACHE_HOME", "/proc/none"));
    assert_refused(&without, 74, &["the wrapper of sleep", "XDG_CACHE_HOME"]);
}
