//! A process with something to advise: started, looked at, treated, measured.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::harness;

/// Longer than any allocator is asked to wait.
const PATIENCE: Duration = Duration::from_secs(20);

/// A process that has said that it is ready; ends with this value.
pub struct Process {
    child: Child,
    /// Kept open: the process writes once more.
    _output: BufReader<ChildStdout>,
    /// The one to look at: a child of `child`, where the state has one.
    pub pid: u32,
}

impl Process {
    /// Starts it and waits for its word: "ready", and its number where that is another.
    pub fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}: ci/install.sh"));
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        output.read_line(&mut line).expect("a line");
        let mut words = line.split_whitespace();
        assert_eq!(words.next(), Some("ready"), "{command:?}");
        let pid = words.next().map_or(child.id(), |pid| pid.parse().expect("a number"));
        Self { child, _output: output, pid }
    }

    /// Has it do what it was started for.
    pub fn go(&mut self) {
        let input = self.child.stdin.as_mut().expect("a pipe");
        input.write_all(b"go\n").expect("a reader");
    }

    /// Resident bytes.
    pub fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).expect("alive");
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kb = line.and_then(|line| line.split_whitespace().nth(1));
        kb.expect("a figure").parse::<u64>().expect("a number") * 1024
    }

    /// The bytes of the finding whose remedy has these words, as soon as there is one.
    pub fn advised(&self, words: &str) -> u64 {
        let began = Instant::now();
        loop {
            let output =
                harness::output(harness::ebb().args(["why", "--json", &self.pid.to_string()]));
            let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
            let findings = said[0]["findings"].as_array().expect("findings").clone();
            let remedy = |finding: &Value| finding["remedy"].as_str().unwrap_or("").to_owned();
            if let Some(found) = findings.iter().find(|one| remedy(one).contains(words)) {
                return found["bytes"].as_u64().expect("bytes");
            }
            let remedies: Vec<String> = findings.iter().map(remedy).collect();
            assert!(began.elapsed() < PATIENCE, "{words}: {remedies:#?}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// What `ebb trim` says of it.
    pub fn trim(&self) -> String {
        let pid = self.pid.to_string();
        let output = harness::output(harness::ebb().args(["trim", "--dry-run", &pid]));
        harness::stdout(&output) + &harness::stderr(&output)
    }

    /// Waits until no more than `most` bytes are resident. Gives what is resident half a second later.
    pub fn falls_to(&self, most: u64) -> u64 {
        let began = Instant::now();
        while self.resident() > most && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(50));
        }
        std::thread::sleep(Duration::from_millis(500));
        self.resident()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What there was, what a remedy was advised for, and what there is with it.
#[derive(Debug)]
pub struct Tried {
    before: u64,
    advised_for: u64,
    after: u64,
}

impl Tried {
    pub fn helps(self, name: &str) {
        eprintln!("{name}: {self:?}");
        assert!(self.after <= self.enough(), "{name}: {self:?}");
    }

    fn enough(&self) -> u64 {
        self.before.saturating_sub(self.advised_for / 2)
    }
}

/// Tries a call within the process.
pub fn call(mut process: Process, words: &str) -> Tried {
    let (advised_for, before) = (process.advised(words), process.resident());
    process.go();
    let after = process.falls_to(before.saturating_sub(advised_for / 2));
    Tried { before, advised_for, after }
}

/// Tries a start with other settings.
pub fn start(process: &Process, words: &str, again: &mut Command) -> Tried {
    let (advised_for, before) = (process.advised(words), process.resident());
    let again = Process::start(again);
    let after = again.falls_to(before.saturating_sub(advised_for / 2));
    Tried { before, advised_for, after }
}

/// A command in a quiet environment.
pub fn quiet(mut command: Command, settings: &[(&str, &str)]) -> Command {
    for name in ["LD_PRELOAD", "MALLOC_CONF", "EBB_CONF", "PYTHONMALLOC"] {
        command.env_remove(name);
    }
    command.envs(settings.iter().copied());
    command
}

/// The program of states in `state`; it does `remedy` when it reads a line.
pub fn states(state: &str, remedy: &str, settings: &[(&str, &str)]) -> Command {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = harness::folder();
        let source = include_str!("../../fixtures/advice/states.c");
        harness::compile(&folder, "gcc", "states", source, &["-O1", "-pthread"]);
        folder
    });
    let mut command = Command::new(folder.path().join("states"));
    command.args([state, remedy]);
    quiet(command, settings)
}
