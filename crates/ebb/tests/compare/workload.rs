//! What the tests of `ebb compare` share: a copy of the fixture to edit, runs of the tool on it, their results.

use crate::harness::{Finished, words};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// The line of the fixture that starts the service. An environment is added to it.
pub const SERVICE: &str = "command = [\"python3\", \"service.py\", \"{port}\"]";
/// Changes to the fixture that make a trial of a few seconds.
pub const SHORT: [(&str, &str); 2] = [("rest_s = 0.6", "rest_s = 0.2"), ("bursts = 2", "bursts = 1")];
/// Two variants that are equally good.
pub const ALIKE: &str = "--variants glibc,x=glibc+MALLOC_ARENA_MAX=1";

pub fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/bursts")
}

pub fn ebb(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
    command.args(words(line));
    command
}

/// A copy of the fixture, and a folder for what trials of it write.
pub struct Workload {
    folder: TempDir,
    out: TempDir,
}

impl Workload {
    /// The fixture as it is.
    pub fn plain() -> Self {
        Self::edited(&[])
    }

    pub fn short() -> Self {
        Self::edited(&SHORT)
    }

    /// Replaces each text of the workload file by the other; each must be there.
    pub fn edited(changes: &[(&str, &str)]) -> Self {
        let new = Self { folder: tempfile::tempdir().unwrap(), out: tempfile::tempdir().unwrap() };
        for name in ["service.py", "load.py", "workload.toml"] {
            std::fs::copy(fixture().join(name), new.path().join(name)).unwrap();
        }
        for (from, to) in changes {
            new.edit("workload.toml", from, to);
        }
        new
    }

    pub fn edit(&self, file: &str, from: &str, to: &str) {
        let path = self.path().join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{file} has no {from}");
        std::fs::write(path, text.replace(from, to)).unwrap();
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The folder of `{out}` in a command line.
    pub fn out(&self) -> &Path {
        self.out.path()
    }

    /// `ebb compare` with the words of `line`, in which `{out}` is the folder for results.
    pub fn compare(&self, line: &str) -> Command {
        let mut command = ebb("compare");
        let line = line.replace("{out}", self.out().to_str().unwrap());
        command.arg(self.path()).args(words(&line));
        command
    }

    pub fn run(&self, line: &str) -> Finished {
        Finished::by(&mut self.compare(line))
    }

    pub fn start(&self, line: &str) -> Child {
        let mut command = self.compare(line);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// `results.json` of `{out}`.
    pub fn results(&self) -> Value {
        serde_json::from_str(&self.written("results.json")).unwrap()
    }

    /// The text of a file of `{out}`.
    pub fn written(&self, name: &str) -> String {
        std::fs::read_to_string(self.out().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// A file of `{out}` with these words.
    #[track_caller]
    pub fn assert_written(&self, name: &str, words: &[&str]) {
        let text = self.written(name);
        for word in words {
            assert!(text.contains(word), "no \"{word}\" in {name}: {text}");
        }
    }
}

#[track_caller]
pub fn median(trial: &Value, variant: usize, figure: &str) -> f64 {
    let variant = &trial["variants"][variant];
    let median = &variant["summary"]["figures"][figure]["median"];
    median.as_f64().unwrap_or_else(|| panic!("no {figure} in {}", variant["summary"]))
}

#[track_caller]
pub fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("no list: {value}"))
}

/// The processes that a trial of the tool with this number started and that still run.
pub fn left_over(tool: u32) -> Vec<i32> {
    let wanted = format!("EBB_RUN={tool}-");
    let running = |pid: &i32| {
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|byte| *byte == 0).any(|entry| entry.starts_with(wanted.as_bytes()))
    };
    let names = std::fs::read_dir("/proc").unwrap().flatten();
    names.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(running).collect()
}
