//! Colours: on a terminal and where they are forced, nowhere else.

use crate::harness::{Subject, words};
use crate::workload::{ALIKE, Workload};
use std::process::{Command, Stdio};
use test_needs::skip;

const ESCAPE: char = '\u{1b}';
const GREEN: &str = "\u{1b}[32m";
const RED: &str = "\u{1b}[31m";
const FORCED: (&str, &str) = ("CLICOLOR_FORCE", "1");

fn sleeper() -> Subject {
    Subject::spawn(Command::new("sleep").arg("600"))
}

/// What `program` writes. The environment decides about colours, so it has nothing but `env` of that.
fn written(program: &str, arguments: &[String], env: Option<(&str, &str)>) -> String {
    let mut command = Command::new(program);
    for key in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "CI"] {
        command.env_remove(key);
    }
    command.env("TERM", "xterm-256color").envs(env).args(arguments);
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output();
    String::from_utf8(output.unwrap().stdout).unwrap()
}

/// What `ebb` writes to a pipe.
fn piped(line: &str, env: Option<(&str, &str)>) -> String {
    written(env!("CARGO_BIN_EXE_ebb"), &words(line), env)
}

/// What it writes to a terminal.
fn on_a_terminal(line: &str, env: Option<(&str, &str)>) -> String {
    let line = format!("'{} {line}'", env!("CARGO_BIN_EXE_ebb"));
    written("script", &words(&format!("--quiet --return --command {line} /dev/null")), env)
}

#[track_caller]
fn assert_plain(text: &str) {
    assert!(!text.contains(ESCAPE) && !text.is_empty(), "{text:?}");
}

#[test]
fn a_verdict_has_its_colour_on_a_terminal_and_nowhere_else() {
    let there = Command::new("script").arg("--version").output();
    if !there.is_ok_and(|output| output.status.success()) {
        skip!("there is no script(1), which makes a terminal");
    }
    let sleeper = sleeper();
    let pid = sleeper.pid();
    for (line, painted) in [
        (format!("why --no-children {pid}"), format!("{GREEN}Nothing to gain:\u{1b}[0m sleep")),
        (format!("check -a jemalloc {pid}"), format!("{pid}: {RED}jemalloc is NOT in charge")),
        ("trim --help".to_owned(), "\u{1b}[".to_owned()),
    ] {
        for text in [on_a_terminal(&line, None), piped(&line, Some(FORCED))] {
            assert!(text.contains(&painted), "{text:?}");
        }
        for env in [("NO_COLOR", "1"), ("TERM", "dumb")] {
            assert_plain(&on_a_terminal(&line, Some(env)));
        }
        assert_plain(&piped(&line, None));
    }
    for verb in ["why", "check"] {
        let line = format!("{verb} --json {pid}");
        assert_plain(&piped(&line, Some(FORCED)));
        assert_plain(&on_a_terminal(&line, None));
    }
}

#[test]
fn a_difference_has_its_colour() {
    let sleeper = sleeper();
    let pid = sleeper.pid();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("look.json").display().to_string();
    piped(&format!("snap {pid} -o {file}"), Some(FORCED));
    let diff = piped(&format!("diff {file} {file}"), Some(FORCED));
    let unchanged = format!("{pid} {GREEN}is unchanged\u{1b}[0m at ");
    assert!(diff.contains(&unchanged), "{diff:?}");
}

#[test]
fn a_trials_verdict_has_its_colour_and_its_files_have_none() {
    let workload = Workload::short();
    let [path, out] = [workload.path(), workload.out()].map(|path| path.display());
    let exports = format!("-o {out} --export-csv {out}/f.csv --export-markdown {out}/f.md");
    let text = piped(&format!("compare {path} {ALIKE} -n 1 {exports}"), Some(FORCED));
    let verdict = "\n\u{1b}[33mVerdict:\u{1b}[0m No allocator helps";
    assert!(text.contains(verdict), "{text}");
    for name in ["results.json", "report.md", "report.html", "f.csv", "f.md"] {
        assert!(!workload.written(name).contains(ESCAPE), "{name}");
    }
}
