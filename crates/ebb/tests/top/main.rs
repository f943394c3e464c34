//! `ebb top` in a terminal of tmux, on real processes; and into a pipe.
#![cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]

#[path = "../harness/mod.rs"]
#[allow(dead_code, reason = "shared by all test programs")]
mod harness;

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use harness::{Finished, subjects};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use test_needs::needs;

/// A screen may take so long to show something on a machine that has other things to do.
const LIMIT: Duration = Duration::from_secs(60);

/// A server of tmux with one shell in it.
struct Terminal(TempDir);

impl Terminal {
    fn start(columns: u16, lines: u16) -> Self {
        let terminal = Self(harness::folder());
        let size = [columns, lines].map(|it| it.to_string());
        let folder = terminal.0.path().to_owned();
        terminal.tmux(&["new-session", "-d", "-x", &size[0], "-y", &size[1], "-c", folder.to_str().unwrap(), "sh"]);
        terminal
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let socket = self.0.path().join("tmux");
        let mut command = Command::new("tmux");
        command.arg("-S").arg(socket).args(["-f", "/dev/null"]).args(arguments);
        command.env("SHELL", "/bin/sh").env("LC_ALL", "C.UTF-8").env_remove("TMUX");
        Finished::by(&mut command).expect(0, &[], &[]).stdout.clone()
    }

    fn types(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys", "-t", "0"], keys].concat());
    }

    /// Waits until the screen is as wanted, and returns it.
    #[track_caller]
    fn until(&self, what: &str, is_there: impl Fn(&str) -> bool) -> String {
        let began = Instant::now();
        loop {
            let screen = self.tmux(&["capture-pane", "-p", "-t", "0"]);
            if is_there(&screen) {
                return screen;
            }
            assert!(began.elapsed() < LIMIT, "not there: {what}\n{screen}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    #[track_caller]
    fn shows(&self, text: &str) -> String {
        self.until(text, |screen| screen.contains(text))
    }

    /// Runs `ebb top` between two looks at the terminal's settings; `STATE` is the same after it as before.
    fn starts_ebb(&self) {
        let ebb = env!("CARGO_BIN_EXE_ebb");
        let run = format!("sh -c 'echo $$ > pid; exec {ebb} top --every 200ms --budget 50'");
        let line = format!("clear; A=$(stty -g); {run}; test $A = $(stty -g) && echo STATE $?");
        self.types(&[&line, "Enter"]);
        self.shows("by HELD");
    }

    #[track_caller]
    fn is_restored(&self, end: &str) {
        self.until(end, |screen| screen.lines().any(|line| line == end));
        let flags = "#{alternate_on} #{mouse_any_flag} #{cursor_flag}";
        assert_eq!(self.tmux(&["display-message", "-p", "-t", "0", flags]).trim(), "0 0 1");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

/// The names of the first column of names, from the top.
fn order(screen: &str, names: &[&str]) -> Vec<String> {
    let words = screen.lines().filter_map(|line| line.split_whitespace().nth(1));
    words.filter(|word| names.contains(word)).map(str::to_owned).collect()
}

#[test]
fn rows_are_shown_sorted_opened_trimmed_and_kept_and_the_terminal_is_as_before() {
    needs!("tmux");
    let folder = harness::folder();
    let held = subjects::named(&folder, "toplot", "burst-1-thread");
    let _live = subjects::named(&folder, "toplive", "live-peak");
    let terminal = Terminal::start(100, 30);
    terminal.starts_ebb();
    terminal.types(&["F4", "top", "Enter"]);
    let names = ["toplot", "toplive"];
    let screen = terminal.until("both were read", |screen| {
        screen.contains("retention") && screen.contains("in use") && order(screen, &names).len() == 2
    });
    assert_eq!(order(&screen, &names), names, "by what is held\n{screen}");
    terminal.types(&["I"]);
    terminal.until("the other way round", |screen| order(screen, &names) == ["toplive", "toplot"]);
    terminal.types(&["I", "g", "g"]);
    terminal.until("as before", |screen| order(screen, &names) == names);
    terminal.types(&["Enter"]);
    terminal.shows("freed and held by the allocator");
    terminal.types(&["S"]);
    let file = format!("ebb-toplot-{}-", held.pid());
    terminal.shows(&file);
    let mut files = terminal.0.path().read_dir().unwrap().flatten().map(|it| it.file_name());
    assert!(files.any(|name| name.to_string_lossy().starts_with(&file)));
    terminal.types(&["Enter", "T"]);
    terminal.shows("Call malloc_trim now?");
    terminal.types(&["y"]);
    terminal.shows("were returned");
    terminal.types(&["Enter", "q"]);
    terminal.shows("F5");
    terminal.tmux(&["resize-window", "-x", "20", "-y", "5"]);
    terminal.until("a small screen", |screen| screen.lines().count() == 5);
    terminal.types(&["q"]);
    terminal.tmux(&["resize-window", "-x", "100", "-y", "30"]);
    terminal.is_restored("STATE 0");
    terminal.starts_ebb();
    let pid = std::fs::read_to_string(terminal.0.path().join("pid")).unwrap();
    kill(Pid::from_raw(pid.trim().parse().unwrap()), Signal::SIGTERM).unwrap();
    terminal.is_restored("STATE 0");
}

#[test]
fn a_pipe_gets_a_table_or_json_and_no_screen() {
    let folder = harness::folder();
    let held = subjects::named(&folder, "heldpipe", "burst-1-thread");
    let once = |option: &str| Finished::by(harness::ebb().args(["top", option]));
    let table = once("--once");
    table.expect(0, &["PID NAME", "heldpipe"], &[]);
    assert!(!table.stdout.contains('\u{1b}'), "{}", table.all());
    let all = once("--json").json();
    let rows = all["processes"].as_array().expect("a list");
    let row = rows.iter().find(|row| row["pid"] == held.id).expect("the process");
    assert!(row["held"].as_u64() > Some(100_000_000), "{row}");
    assert_eq!((&row["name"], &row["verdict"]), (&"heldpipe".into(), &"retention".into()), "{row}");
    assert!(all["groups"].as_array().is_some_and(|groups| !groups.is_empty()), "{all}");
    let none = Finished::by(harness::ebb().arg("top"));
    none.expect(64, &[], &["--once prints a table"]);
}
