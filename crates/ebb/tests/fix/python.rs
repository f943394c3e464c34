//! A Python program that starts others: what `ebb fix` writes and prints is run, and the child alone is on the allocator.

use std::process::Command;

use serde_json::Value;

use crate::harness::{Finished, Subject, assert_refused, ebb, ebbmalloc, stderr};
use crate::{Place, assert_code};

/// What `ebb check` says of one process alone, and its environment at its start.
fn charge(pid: &str) -> (bool, String) {
    let check = Finished::by(ebb().args(["check", "--json", pid]));
    let value: Value = check.json();
    let processes = value["processes"].as_array().expect("processes");
    let own = processes.iter().find(|it| it["pid"] == pid.parse::<u32>().expect("a pid"));
    let own = own.unwrap_or_else(|| panic!("no {pid}: {}", check.all()));
    let environ = std::fs::read(format!("/proc/{pid}/environ")).expect("its environment");
    let environ = String::from_utf8_lossy(&environ).replace('\0', "\n");
    (own["in_charge"] == true, environ)
}

/// Runs `app.py`, which says its child's pid: the child is on ebbmalloc and its parent is not.
fn assert_only_the_child_has_it(place: &Place) {
    let mut python = Command::new("python3");
    python.arg(place.path("app.py")).env_remove("LD_PRELOAD");
    let app = Subject::start(&mut python);
    let (parent, child) = (app.child.id().to_string(), app.pid());
    let preload = format!("LD_PRELOAD={}", ebbmalloc().display());
    let (in_charge, environ) = charge(&child);
    assert!(in_charge && environ.lines().any(|it| it == preload), "the child: {environ}");
    let (in_charge, environ) = charge(&parent);
    assert!(!in_charge && !environ.contains("LD_PRELOAD"), "the parent: {environ}");
}

#[test]
fn a_child_of_subprocess() {
    let text = "import subprocess, sys\n\nchild = subprocess.Popen(\n    [sys.executable, '-c', 'import sys; sys.stdin.read()'],\n    \
                stdin=subprocess.PIPE,  # ends with us\n)\nprint('ready', child.pid, flush=True)\nchild.wait()\n";
    let place = Place::with(&[("app.py", text)]);
    let library = ebbmalloc().display().to_string();
    let fix = |more: &[&str]| place.fix(&[&["app.py", "--library", &library], more].concat());
    assert_code(&fix(&[]), 17);
    assert_code(&fix(&["--write"]), 0);
    assert!(place.read("app.py").starts_with("import os\nimport subprocess, sys\n"));
    assert_only_the_child_has_it(&place);
    assert_code(&fix(&[]), 0);
    assert_code(&place.fix(&["app.py", "--undo"]), 0);
    assert_eq!(place.read("app.py"), text);
}

/// The lines that `ebb fix` prints, put around the start of the child.
#[test]
fn a_child_of_multiprocessing() {
    let text = "import multiprocessing, os\n\nif __name__ == '__main__':\n    \
                ours, theirs = multiprocessing.Pipe()\n    \
                child = multiprocessing.Process(target=theirs.poll, args=(None,))\n    \
                START\n    print('ready', child.pid, flush=True)\n    child.join()\n";
    let place = Place::with(&[("app.py", text)]);
    let library = ebbmalloc().display().to_string();
    let output = place.fix(&["app.py", "--library", &library]);
    assert_code(&output, 17);
    let said = stderr(&output);
    let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("    ")).collect();
    assert_eq!(lines.len(), 3, "{said}");
    assert!(said.contains("app.py:5: around the start of this Process"), "{said}");
    let lines = lines.join("\n").replace("...  # the start", "child.start()");
    let text = text.replace("    START", &lines);
    place.write("app.py", &text.replace("multiprocessing.Process(", "multiprocessing.get_context('spawn').Process("));
    assert_only_the_child_has_it(&place);
}

#[test]
fn what_cannot_be_changed_is_refused_or_named() {
    let starts_none = Place::with(&[("app.py", "print('subprocess.run()')  # subprocess.run()\n")]);
    assert_refused(&starts_none.fix(&["app.py"]), 64, &["starts no process", "ebb run"]);
    let place =
        Place::with(&[("app.py", "import subprocess\nsubprocess.run(['ls'], env={})\n"), ("Dockerfile", "FROM x\n")]);
    assert_refused(&place.fix(&["app.py", "--child", "cp"]), 64, &["starts no cp process"]);
    assert_refused(&place.fix(&["Dockerfile", "--child", "cp"]), 64, &["ebb run --child NAME"]);
    let output = place.fix(&["app.py", "--child", "ls"]);
    assert_code(&output, 17);
    let said = stderr(&output);
    let added = "app.py:2: add to its env: \"LD_PRELOAD\": \"/usr/local/lib/libebbmalloc.so\"";
    assert!(said.contains(added), "{said}");
}
