//! `ebb compare --live` on running processes: which holds less, restarts, and Ctrl-C.

use crate::harness::{Finished, Subject, is_long};
use crate::workload::{ebb, list};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A process that holds so many MB. `word` makes its command line one of a kind.
fn holder(megabytes: u32, word: &str) -> Subject {
    let code = "import sys; kept = b'x' * (int(sys.argv[1]) << 20); print('ready', flush=True); sys.stdin.read()";
    let word = format!("{word}-{}", std::process::id());
    Subject::start(Command::new("python3").args(["-c", code, &megabytes.to_string(), &word]))
}

#[test]
fn the_one_that_holds_less_is_said_with_its_interval() {
    let (old, new) = (holder(120, "a"), holder(20, "b"));
    let folder = tempfile::tempdir().unwrap();
    let sides = format!("old={} new={}", old.pid(), new.pid());
    let mut command = ebb(&format!("compare --live {sides} --for 30s --every 500ms -o"));
    Finished::by(command.arg(folder.path())).expect(
        0,
        &["median", "floor", "Difference to old", "Verdict: new holds", " windows of "],
        &[],
    );
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let trial: serde_json::Value = serde_json::from_str(&read("results.json")).unwrap();
    assert!(trial["canary"]["windows"].as_u64().unwrap() >= 2);
    assert_eq!(trial["verdict"]["variant"], "new");
    assert_eq!(trial["variants"][0]["allocator"], "glibc");
    let typical = &trial["variants"][1]["summary"]["figures"]["typical"];
    let high = &typical["versus_first"]["interval"][1];
    assert!(high.as_f64().unwrap() < -80e6, "{high}");
    let page = read("report.html");
    assert!(page.contains("Held while it was watched") && page.contains("class=\"plot wide\""));
}

#[test]
fn a_restart_is_followed_and_ctrl_c_keeps_what_was_seen() {
    let (old, new) = (holder(20, "one"), holder(20, "other"));
    let sides = format!("old={} new={}", old.pid(), new.pid());
    let mut command = ebb(&format!("compare --live {sides} --for 2h --every 500ms --json"));
    let mut tool = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(tool.stderr.take().unwrap()).lines().map_while(Result::ok);
    let mut wait_for = |wanted: &str| {
        let found = lines.find(|line| line.contains(wanted));
        assert!(found.is_some(), "it ended before it said \"{wanted}\"");
    };
    wait_for("watching old, new for 2h");
    std::thread::sleep(Duration::from_secs(3));
    drop(new);
    wait_for("new has ended");
    let again = holder(20, "other");
    wait_for(&format!("new restarted as process {}", again.pid()));
    std::thread::sleep(Duration::from_secs(3));
    kill(Pid::from_raw(tool.id() as i32), Signal::SIGINT).unwrap();
    let finished = Finished::of(&tool.wait_with_output().unwrap());
    let trial = finished.expect(130, &[], &[]).json();
    assert_eq!(trial["interrupted"], true);
    let run = &trial["variants"][1]["runs"][0];
    assert!(run["restarts"][0]["text"].as_str().unwrap().contains("absent for about"), "{run}");
    assert!(list(&run["samples"]).len() > 3);
    assert!(trial["variants"][0]["runs"][0].get("restarts").is_none());
}

#[test]
fn what_cannot_be_watched_is_refused() {
    let process = holder(1, "c");
    let side = format!("new={}", process.pid());
    for (sides, expected) in [
        (format!("old=4194999 {side}"), "no process has the pid 4194999"),
        (format!("{side} {side}"), "new is given twice"),
        (side.clone(), "--live"),
        (format!("4194999 {side}"), "not NAME=TARGET"),
        (format!("{side} old={} --for 1s --every 1s", process.pid()), "--for must be long enough for two looks"),
    ] {
        Finished::by(&mut ebb(&format!("compare --live {sides}"))).expect(64, &[], &[expected]);
    }
}

/// Holds as many MB as the file `size` says when it starts, and 8 MB more once there is a file `grow`.
const GROWING: &str = r#"
import os, sys, time
folder = sys.argv[1]
kept = [b"x" * (int(open(folder + "/size").read()) << 20)]
print("ready", flush=True)
while True:
    if len(kept) == 1 and os.path.exists(folder + "/grow"):
        kept.append(b"x" * (8 << 20))
    time.sleep(0.1)
"#;

#[test]
fn steps_are_lined_up_with_the_events_of_a_file_and_with_restarts() {
    if !is_long() {
        return;
    }
    let folders = [0, 1].map(|_| tempfile::tempdir().unwrap());
    let start = |index: usize, megabytes: u32| {
        let folder = folders[index].path();
        std::fs::write(folder.join("size"), megabytes.to_string()).unwrap();
        Subject::start(Command::new("python3").args(["-c", GROWING]).arg(folder))
    };
    let (old, new) = (start(0, 20), start(1, 20));
    let events = folders[0].path().join("events");
    std::fs::write(&events, "").unwrap();
    let sides = format!("old={} new={}", old.pid(), new.pid());
    let line = format!("compare --live {sides} --for 90s --every 100ms --events");
    let out = tempfile::tempdir().unwrap();
    let mut command = ebb(&line);
    let command = command.arg(&events).arg("-o").arg(out.path());
    let tool = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(30));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    std::fs::write(&events, format!("{} import\n", now.as_secs_f64())).unwrap();
    std::fs::write(folders[0].path().join("grow"), "").unwrap();
    std::thread::sleep(Duration::from_secs(20));
    drop(new);
    let _again = start(1, 50);
    let finished = Finished::of(&tool.wait_with_output().unwrap());
    finished.expect(0, &["! old: step of the floor at ", "MB (", "after import", "restart", "What remains: "], &[]);
    let read = std::fs::read_to_string(out.path().join("results.json")).unwrap();
    let trial: serde_json::Value = serde_json::from_str(&read).unwrap();
    for (side, bytes, from_s, label) in [(0, 8.4e6, 29.0, "import"), (1, 31.5e6, 49.0, "restart")] {
        let run = &trial["variants"][side]["runs"][0];
        let [step] = list(&run["steps"]) else { panic!("one step: {}", run["steps"]) };
        let (size, at_s) = (step["bytes"].as_f64().unwrap(), step["at_s"].as_f64().unwrap());
        assert!((size - bytes).abs() < 1.5e6 && (from_s..from_s + 12.0).contains(&at_s), "{step}");
        assert!(list(&step["events"]).iter().any(|event| event == label), "{step}");
        let kinds = list(&run["events"]);
        assert!(kinds.iter().any(|it| it["label"] == label && it["rises"] == 1), "{kinds:?}");
    }
}

#[test]
fn a_file_of_events_is_read_before_the_watch() {
    let process = holder(1, "d");
    let line = format!("compare --live a={0} b={0} --events /nowhere/events", process.pid());
    Finished::by(&mut ebb(&line)).expect(64, &[], &["/nowhere/events"]);
}
