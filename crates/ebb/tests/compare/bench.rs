//! What the tests of `ebb compare` share: a copy of the fixture to edit, a run of the tool, its results.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The fixture as it is.
pub fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/bursts")
}

/// A copy of the fixture with its workload file changed.
pub struct Edited(pub tempfile::TempDir);

impl Edited {
    /// Replaces each text by the other; each must be there.
    pub fn new(changes: &[(&str, &str)]) -> Edited {
        let dir = tempfile::tempdir().unwrap();
        for name in ["service.py", "load.py", "workload.toml"] {
            std::fs::copy(fixture().join(name), dir.path().join(name)).unwrap();
        }
        let path = dir.path().join("workload.toml");
        let mut text = std::fs::read_to_string(&path).unwrap();
        for (from, to) in changes {
            assert!(text.contains(from), "the fixture has no {from}");
            text = text.replace(from, to);
        }
        std::fs::write(path, text).unwrap();
        Edited(dir)
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

/// The command, ready for more arguments.
pub fn compare(workload: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
    command.arg("compare").arg(workload);
    command
}

/// Runs it to its end.
pub fn run(workload: &Path, arguments: &[&str]) -> Finished {
    Finished::of(&compare(workload).args(arguments).output().unwrap())
}

/// What came of a run.
pub struct Finished {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Finished {
    pub fn of(output: &Output) -> Finished {
        Finished {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Both must hold what is expected; shows everything where they do not.
    #[track_caller]
    pub fn expect(&self, code: i32, stdout: &[&str], stderr: &[&str]) {
        let all = format!("stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        assert_eq!(self.code, Some(code), "{all}");
        for text in stdout {
            assert!(self.stdout.contains(text), "no \"{text}\" in {all}");
        }
        for text in stderr {
            assert!(self.stderr.contains(text), "no \"{text}\" in {all}");
        }
    }
}

/// `results.json` of an output folder.
pub fn results(output: &Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(output.join("results.json")).unwrap()).unwrap()
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
