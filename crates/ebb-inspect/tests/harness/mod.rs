//! C programs that are built once and answer lines: for the tests of glibc's heap and of other allocators'.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use ebb_inspect::Target;
use ebb_inspect::memory::Presence;
use ebb_inspect::target::Backing;

/// A running program. It is killed on drop.
pub struct Process {
    pub child: Child,
    answers: BufReader<ChildStdout>,
}

impl Process {
    pub fn start(command: &mut Command) -> Self {
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = started.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, answers }
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// Its next line.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// The figures that it answers to `command`.
    pub fn ask(&mut self, command: u8) -> Vec<u64> {
        self.child.stdin.as_mut().unwrap().write_all(&[command]).unwrap();
        let line = self.line();
        let figures = line.split(' ').map(|figure| figure.parse());
        figures.collect::<Result<_, _>>().unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Where `programs/FILE` lies.
pub fn source(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(file)
}

/// Runs `compiler`, which lacks the name of its output. The file is written aside and moved, so that another run of these
/// tests never executes half of it.
pub fn build(compiler: &mut Command, name: &str) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let aside = program.with_extension(std::process::id().to_string());
    let status = compiler.arg("-o").arg(&aside).status();
    assert!(status.is_ok_and(|status| status.success()), "{compiler:?}");
    std::fs::rename(&aside, &program).unwrap();
    program
}

/// Present bytes of each mapping, and the bytes of page tables.
pub fn state(target: &Target) -> (BTreeMap<u64, u64>, Option<u64>) {
    let mappings = target.mappings().unwrap();
    let present =
        mappings.iter().filter(|mapping| mapping.readable && mapping.backing != Backing::Other).map(|mapping| {
            let presence = Presence::read(target.memory(), mapping.start, mapping.end).unwrap();
            (mapping.start, presence.bytes(mapping.start, mapping.end))
        });
    let tables = target.process().status().unwrap().vmpte;
    (present.collect(), tables)
}
