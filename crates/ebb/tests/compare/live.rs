//! `ebb compare --live` on running processes: which holds less, restarts, and Ctrl-C.
//!
//! Needs python3.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// A process that holds so many MB; killed when dropped.
struct Holder(Child);

impl Holder {
    /// `word` makes its command line one of a kind.
    fn start(megabytes: u32, word: &str) -> Holder {
        let code = "import sys; kept = b'x' * (int(sys.argv[1]) << 20); print('ready', flush=True); sys.stdin.read()";
        let mut child = Command::new("python3")
            .args(["-c", code, &megabytes.to_string(), word])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = [0; 6];
        child.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
        Holder(child)
    }

    fn side(&self, name: &str) -> String {
        format!("{name}={}", self.0.id())
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn word(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

fn live(sides: &[&str], more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
    command.args(["compare", "--live"]).args(sides).args(more);
    command
}

fn text(output: &Output) -> String {
    format!(
        "{:?}\n{}\n{}",
        output.status.code(),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[test]
fn the_one_that_holds_less_is_said_with_its_interval() {
    let (old, new) = (Holder::start(120, &word("a")), Holder::start(20, &word("b")));
    let folder = tempfile::tempdir().unwrap();
    let output = live(
        &[&old.side("old"), &new.side("new")],
        &["--for", "30s", "--every", "500ms", "-o", folder.path().to_str().unwrap()],
    )
    .output()
    .unwrap();
    let said = text(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    for expected in ["median", "floor", "Difference to old", "Verdict: new holds", " windows of "] {
        assert!(said.contains(expected), "no {expected} in {said}");
    }
    let results = std::fs::read_to_string(folder.path().join("results.json")).unwrap();
    let trial: serde_json::Value = serde_json::from_str(&results).unwrap();
    assert!(trial["canary"]["windows"].as_u64().unwrap() >= 2);
    assert_eq!(trial["verdict"]["variant"], "new");
    assert_eq!(trial["variants"][0]["allocator"], "glibc");
    let high =
        &trial["variants"][1]["summary"]["figures"]["typical"]["versus_first"]["interval"][1];
    assert!(high.as_f64().unwrap() < -80e6, "{high}");
    let page = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(page.contains("Held while it was watched") && page.contains("class=\"plot wide\""));
}

#[test]
fn a_restart_is_followed_and_ctrl_c_keeps_what_was_seen() {
    let (one, other) = (word("one"), word("other"));
    let (old, new) = (Holder::start(20, &one), Holder::start(20, &other));
    let mut tool =
        live(&[&old.side("old"), &new.side("new")], &["--for", "2h", "--every", "500ms", "--json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
    let mut lines = BufReader::new(tool.stderr.take().unwrap()).lines().map_while(Result::ok);
    let mut wait_for = |wanted: &str| {
        let found = lines.find(|line| line.contains(wanted));
        assert!(found.is_some(), "it ended before it said \"{wanted}\"");
    };
    wait_for("watching old, new for 2h");
    std::thread::sleep(Duration::from_secs(3));
    drop(new);
    wait_for("new has ended");
    let again = Holder::start(20, &other);
    wait_for(&format!("new restarted as process {}", again.0.id()));
    std::thread::sleep(Duration::from_secs(3));
    kill(Pid::from_raw(tool.id() as i32), Signal::SIGINT).unwrap();
    let mut stdout = String::new();
    tool.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
    assert_eq!(tool.wait().unwrap().code(), Some(130));
    let trial: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(trial["interrupted"], true);
    let run = &trial["variants"][1]["runs"][0];
    assert!(run["restarts"][0]["text"].as_str().unwrap().contains("absent for about"), "{run}");
    assert!(run["samples"].as_array().unwrap().len() > 3);
    assert!(trial["variants"][0]["runs"][0].get("restarts").is_none());
}

#[test]
fn what_cannot_be_watched_is_refused() {
    let new = Holder::start(1, &word("c"));
    let refused = |sides: &[&str], more: &[&str], expected: &str| {
        let output = live(sides, more).output().unwrap();
        let said = text(&output);
        assert_eq!(output.status.code(), Some(64), "{said}");
        assert!(said.contains(expected), "{said}");
    };
    let side = new.side("new");
    refused(&["old=4194999", &side], &[], "no process has the pid 4194999");
    refused(&[&side, &side], &[], "new is given twice");
    refused(&[&side], &[], "--live");
    refused(&["4194999", &side], &[], "not NAME=TARGET");
    refused(
        &[&side, &new.side("old")],
        &["--for", "1s", "--every", "1s"],
        "--for must be long enough for two looks",
    );
}
