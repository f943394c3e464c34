//! A C program, built once, and a process of it that answers lines.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use ebb_inject::{Called, Function, NotCalled};
use ebb_inspect::Target;

/// A running program. Ends with this value.
pub struct Program {
    child: Child,
    answers: BufReader<ChildStdout>,
    /// What it said first.
    pub first: String,
}

impl Program {
    /// Starts `tests/programs/NAME.c` and waits for its first line.
    pub fn start(name: &str, arguments: &[&str]) -> Self {
        let mut child = Command::new(built(name))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut program = Self { child, answers, first: String::new() };
        program.first = program.line();
        program
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a pid")
    }

    /// Its answer to a line.
    pub fn ask(&mut self) -> String {
        let stdin = self.child.stdin.as_mut().expect("a pipe");
        stdin.write_all(b"\n").expect("it lives");
        self.line()
    }

    /// Its next line.
    pub fn next(&mut self) -> String {
        self.line()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// malloc_trim in process `pid`.
pub fn trim(pid: i32, patience: Duration) -> Result<Called, NotCalled> {
    let target = Target::open(pid).expect("a process");
    let function = Function::malloc_trim(&target).expect("glibc");
    ebb_inject::call(&target, &function, patience)
}

fn built(name: &str) -> PathBuf {
    static BUILD: Mutex<()> = Mutex::new(());
    let _alone = BUILD.lock().unwrap();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/programs/{name}.c"));
    // A name of its own for each test run: another one may be running the program.
    let program = folder.join(format!("{name}-{}", std::process::id()));
    if !program.exists() {
        // The test of registers uses the red zone itself.
        let flags = ["-O2", "-mavx2", "-mno-red-zone", "-Wall", "-Werror", "-pthread"];
        let status = Command::new("cc").args(flags).arg(source).arg("-o").arg(&program).status();
        assert!(status.expect("a C compiler").success());
    }
    program
}
