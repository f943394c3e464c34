//! Frames of Python: each stack is what CPython itself says of it. The interpreter is `python3`; `EBB_TEST_PYTHONS` names
//! others, separated by colons (ci/pythons.sh).

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::harness::{self, Finished};

/// Function, file and line, the innermost first.
type Stack = Vec<(String, String, u64)>;

/// The innermost Python function of the blocks that count.
const INNERMOST: &str = "take";
/// Code that is gone when it is looked at has this name; of all others nothing is freed.
const GONE: &str = "<python>";

/// Frames of Python, without code that was made from a string.
fn of_python(frames: &Value) -> Stack {
    let mut stack = Stack::new();
    for frame in frames.as_array().expect("frames") {
        let [function, file, line] = match frame {
            Value::Array(it) => [it[0].clone(), it[1].clone(), it[2].clone()],
            it => ["function", "file", "line"].map(|name| it[name].clone()),
        };
        let function = function.as_str().expect("a name").to_owned();
        let file = file.as_str().unwrap_or_default().to_owned();
        if function == GONE || file == "<string>" {
            stack.push((GONE.to_owned(), String::new(), 0));
        } else if file.ends_with(".py") || file.starts_with('<') {
            stack.push((function, file, line.as_u64().expect("a number")));
        }
    }
    stack
}

#[test]
fn stacks_of_python_are_those_that_python_sees() {
    let pythons = std::env::var("EBB_TEST_PYTHONS").unwrap_or_else(|_| "python3".to_owned());
    for python in pythons.split(':') {
        assert_stacks(python);
    }
}

fn assert_stacks(python: &str) {
    let folder = harness::folder();
    let truth = folder.path().join("truth.json");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/profile/stacks.py");
    let mut program = super::started(Command::new(python).arg(script).arg(&truth));
    let ebb = super::begun(&program.pid(), &["--for", "2m", "--interval", "64KiB"]);
    std::thread::sleep(Duration::from_millis(700));
    program.tell();
    assert_eq!(program.line(), "done", "{python}");
    kill(Pid::from_raw(ebb.id().cast_signed()), Signal::SIGINT).expect("ebb");
    let done = Finished::of(&ebb.wait_with_output().expect("ebb"));
    let profile = done.json();

    let truth: Value = serde_json::from_slice(&std::fs::read(&truth).expect("the truth")).expect("JSON");
    let truth: BTreeSet<Stack> = truth.as_array().expect("stacks").iter().map(of_python).collect();
    let stacks = profile["stacks"].as_array().expect("stacks");
    let found = stacks.iter().map(|stack| of_python(&stack["frames"]));
    let found: BTreeSet<Stack> = found.filter(|it| it.first().is_some_and(|it| it.0 == INNERMOST)).collect();
    let [wrong, missing] = [found.difference(&truth).next(), truth.difference(&found).next()];
    assert_eq!((wrong, missing), (None, None), "{python}: {} right", found.intersection(&truth).count());
    assert!(truth.len() > 150, "{python}");
    // The loop itself is in no stack. C functions lie between the functions that they call and their callers.
    let is_between = |stack: &Value| {
        let frames = stack["frames"].as_array().expect("frames");
        let place =
            |part: &str| frames.iter().position(|it| it["function"].as_str().is_some_and(|it| it.contains(part)));
        place("comparison").zip(place("program")).is_some_and(|(first, last)| {
            frames[first..last].iter().any(|it| {
                let file = it["file"].as_str().unwrap_or_default();
                !file.ends_with(".py")
            })
        })
    };
    assert!(stacks.iter().any(is_between), "{python}");
    let has_loop = |stack: &&Value| {
        let frames = stack["frames"].as_array().expect("frames");
        let python = of_python(&stack["frames"]);
        !python.is_empty() && frames.iter().any(|it| it["function"].as_str() == Some("_PyEval_EvalFrameDefault"))
    };
    assert!(stacks.iter().filter(has_loop).count() * 20 < stacks.len(), "{python}");
}
