//! `ebb compare --live` on running processes: which holds less, restarts, and Ctrl-C.

use crate::harness::{Finished, Subject};
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
        (
            format!("{side} old={} --for 1s --every 1s", process.pid()),
            "--for must be long enough for two looks",
        ),
    ] {
        Finished::by(&mut ebb(&format!("compare --live {sides}"))).expect(64, &[], &[expected]);
    }
}
