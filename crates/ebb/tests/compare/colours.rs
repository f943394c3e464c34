//! Colours: on a terminal and where they are forced, nowhere else.

use crate::bench::Edited;
use std::process::{Child, Command, Stdio};
use test_needs::skip;

const ESCAPE: char = '\u{1b}';
const GREEN: &str = "\u{1b}[32m";
const RED: &str = "\u{1b}[31m";

/// Something to look at.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Sleeper {
        let mut command = Command::new("sleep");
        command.arg("600").stdout(Stdio::null());
        Sleeper(command.spawn().unwrap())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The environment decides, so it starts without any of its variables.
fn clean(program: &str) -> Command {
    let mut command = Command::new(program);
    for key in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "CI"] {
        command.env_remove(key);
    }
    command.env("TERM", "xterm-256color").stderr(Stdio::null());
    command
}

/// What `ebb` writes to a pipe.
fn piped(arguments: &[&str], env: &[(&str, &str)]) -> String {
    let mut command = clean(env!("CARGO_BIN_EXE_ebb"));
    let output = command.args(arguments).envs(env.iter().copied()).output();
    String::from_utf8(output.unwrap().stdout).unwrap()
}

/// What it writes to a terminal.
fn on_a_terminal(arguments: &[&str], env: &[(&str, &str)]) -> String {
    let mut words = vec![env!("CARGO_BIN_EXE_ebb")];
    words.extend(arguments);
    let line = shlex::try_join(words).unwrap();
    let mut command = clean("script");
    command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    let output = command.stdin(Stdio::null()).envs(env.iter().copied()).output();
    String::from_utf8(output.unwrap().stdout).unwrap()
}

fn has_a_terminal() -> bool {
    let there = Command::new("script").arg("--version").output();
    there.is_ok_and(|output| output.status.success())
}

#[test]
fn a_verdict_has_its_colour_on_a_terminal_and_nowhere_else() {
    if !has_a_terminal() {
        skip!("there is no script(1), which makes a terminal");
    }
    let sleeper = Sleeper::start();
    let pid = sleeper.pid();
    let why = ["why", "--no-children", &pid];
    let check = ["check", "-a", "jemalloc", &pid];
    let verdict = format!("{GREEN}Nothing to gain:\u{1b}[0m sleep");
    let answer = format!("{pid}: {RED}jemalloc is NOT in charge");
    let help = ["trim", "--help"];

    for (arguments, painted) in [(&why[..], &*verdict), (&check[..], &*answer), (&help, "\u{1b}[")]
    {
        let text = on_a_terminal(arguments, &[]);
        assert!(text.contains(painted), "{text:?}");
        let forced = piped(arguments, &[("CLICOLOR_FORCE", "1")]);
        assert!(forced.contains(painted), "{forced:?}");

        for env in [("NO_COLOR", "1"), ("TERM", "dumb")] {
            let text = on_a_terminal(arguments, &[env]);
            assert!(!text.contains(ESCAPE) && !text.is_empty(), "{env:?}: {text:?}");
        }
        let text = piped(arguments, &[]);
        assert!(!text.contains(ESCAPE) && !text.is_empty(), "{text:?}");
    }
    for json in [&["why", "--json", &pid][..], &["check", "--json", &pid]] {
        let text = piped(json, &[("CLICOLOR_FORCE", "1")]);
        assert!(!text.contains(ESCAPE) && !text.is_empty(), "{text:?}");
        let text = on_a_terminal(json, &[]);
        assert!(!text.contains(ESCAPE) && !text.is_empty(), "{text:?}");
    }
}

#[test]
fn a_difference_has_its_colour() {
    let sleeper = Sleeper::start();
    let pid = sleeper.pid();
    let force = [("CLICOLOR_FORCE", "1")];
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("look.json");
    let file = file.to_str().unwrap();
    piped(&["snap", &pid, "-o", file], &force);
    let diff = piped(&["diff", file, file], &force);
    let unchanged = format!("{pid} {GREEN}is unchanged\u{1b}[0m at ");
    assert!(diff.contains(&unchanged), "{diff:?}");
}

#[test]
fn a_trials_verdict_has_its_colour_and_its_files_have_none() {
    let workload = Edited::new(&[("rest_s = 0.6", "rest_s = 0.2"), ("bursts = 2", "bursts = 1")]);
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().to_str().unwrap();
    let [csv, markdown] = ["f.csv", "f.md"].map(|name| format!("{output}/{name}"));
    let path = workload.path().to_str().unwrap();
    let arguments = [
        "compare",
        path,
        "--variants",
        "glibc,x=glibc+MALLOC_ARENA_MAX=1",
        "-n",
        "1",
        "-o",
        output,
        "--export-csv",
        &csv,
        "--export-markdown",
        &markdown,
    ];
    let text = piped(&arguments, &[("CLICOLOR_FORCE", "1")]);
    let verdict = "\n\u{1b}[33mVerdict:\u{1b}[0m No allocator helps";
    assert!(text.contains(verdict), "{text}");
    for name in ["results.json", "report.md", "report.html", "f.csv", "f.md"] {
        let file = std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(!file.contains(ESCAPE), "{name}");
    }
}
