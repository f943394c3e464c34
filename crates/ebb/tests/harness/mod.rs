//! Builds and starts what the tests need. A tool that is missing fails the test with its package.

pub mod subjects;

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

/// The program under test with a quiet environment.
pub fn ebb() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
    for name in ["LD_PRELOAD", "MALLOC_CONF", "EBB_CONF", "EBB_LIB"] {
        command.env_remove(name);
    }
    command
}

/// The program under test as a user without rights: a copy in `folder`, since the build's own folder may
/// be closed to that user.
pub fn unprivileged_ebb(folder: &TempDir) -> Command {
    if !nix::unistd::Uid::effective().is_root() {
        return ebb();
    }
    let copy = folder.path().join("ebb");
    copy_program(env!("CARGO_BIN_EXE_ebb").as_ref(), &copy);
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(copy)
        .env("PATH", "/usr/bin:/bin")
        .env_remove("LD_PRELOAD");
    command
}

/// Copies a program that will be started. Not in this process: what another test starts meanwhile would have the
/// copy open for writing for a moment, and it cannot be started then (ETXTBSY).
pub fn copy_program(from: &Path, to: &Path) {
    let status = Command::new("cp").arg(from).arg(to).status();
    assert!(status.expect("cp").success(), "{}", from.display());
}

pub fn run<S: AsRef<OsStr>>(arguments: &[S]) -> Output {
    output(ebb().arg("run").args(arguments))
}

pub fn output(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim().to_owned()
}

/// Asserts the exit code and that the only thing said is one line with `words` in it.
#[track_caller]
pub fn assert_refused(output: &Output, code: i32, words: &[&str]) {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.starts_with("ebb: "), "{text}");
    for word in words {
        assert!(text.contains(word), "\"{word}\" is not in: {text}");
    }
    assert_eq!(stdout(output), "");
}

pub fn words(line: &str) -> Vec<String> {
    shlex::split(line).unwrap_or_else(|| panic!("an open quote: {line}"))
}

/// The outcome of a program that ran to its end.
pub struct Finished {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Finished {
    pub fn of(output: &Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    pub fn by(command: &mut Command) -> Self {
        Self::of(&output(command))
    }

    /// All of it, for the message of a failure.
    pub fn all(&self) -> String {
        format!("code {:?}\nstdout:\n{}\nstderr:\n{}", self.code, self.stdout, self.stderr)
    }

    /// Both must hold what is expected; shows everything where they do not.
    #[track_caller]
    pub fn expect(&self, code: i32, stdout: &[&str], stderr: &[&str]) -> &Self {
        assert_eq!(self.code, Some(code), "{}", self.all());
        for (text, parts) in [(&self.stdout, stdout), (&self.stderr, stderr)] {
            for part in parts {
                assert!(text.contains(part), "no \"{part}\" in {}", self.all());
            }
        }
        self
    }

    /// Refused before anything was run.
    #[track_caller]
    pub fn expect_nothing_started(&self) {
        assert!(!self.stderr.contains("run 1"), "{}", self.all());
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}", self.all()))
    }
}

/// What `ebb why --json` says of one process, and its exit code.
#[track_caller]
pub fn why_json(pid: &str) -> (i32, Value) {
    let why = Finished::by(ebb().args(["why", "--json", pid]));
    (why.code.expect("a code"), why.json()[0].clone())
}

/// Runs a check on each of the named cases, two at once, and fails with the names of the failed ones.
pub fn each<T: Sync>(cases: &[(&str, T)], check: impl Fn(&T) + Sync) {
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let lane = || {
        // Relaxed: it only hands out numbers.
        while let Some((name, case)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            let failure = thread::scope(|scope| {
                // The message of a panic has the thread's name.
                let thread = thread::Builder::new().name((*name).to_owned());
                let run = thread.spawn_scoped(scope, || check(case)).expect("a thread");
                run.join().err()
            });
            if failure.is_some() {
                failed.lock().expect("the list").push(*name);
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(lane);
        scope.spawn(lane);
    });
    let failed = failed.into_inner().expect("the list");
    assert!(failed.is_empty(), "these cases fail: {failed:?}");
}

/// Whether long tests were asked for.
pub fn is_long() -> bool {
    std::env::var_os("EBB_LONG").is_some()
}

/// A machine that has other things to do gets a minute.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < end, "not within a minute: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A running process, ended with this value.
pub struct Subject {
    pub child: Child,
    /// The process to look at: a child of `child`, if its first line says so.
    pub id: u32,
    output: BufReader<ChildStdout>,
}

impl Subject {
    /// Starts it, with its stdin and stdout in our hands.
    pub fn spawn(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}: ci/install.sh"));
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { id: child.id(), child, output }
    }

    /// Starts it and waits for its word: "ready", and the number of the process to look at where that is another.
    pub fn start(command: &mut Command) -> Self {
        let mut subject = Self::spawn(command);
        let line = subject.line();
        let mut words = line.split_whitespace();
        assert_eq!(words.next(), Some("ready"), "{command:?}");
        if let Some(pid) = words.next() {
            subject.id = pid.parse().expect("a number");
        }
        subject
    }

    /// Python code that says "ready".
    pub fn python(code: &str) -> Self {
        Self::start(Command::new("python3").args(["-c", code]))
    }

    pub fn pid(&self) -> String {
        self.id.to_string()
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    /// Gives it a line to read.
    pub fn tell(&mut self) {
        self.child.stdin.as_mut().expect("a pipe").write_all(b"\n").expect("a reader");
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.id.cast_signed()), signal).expect("a signal");
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        if let Ok(Some(_)) = self.child.try_wait() {
            return;
        }
        // Asked first, so that one with workers ends them as well.
        let _ = kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM);
        for _ in 0..100 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where Debian's package has the allocator's library; the tool's own search must find the same.
pub fn peer(soname: &str, package: &str) -> PathBuf {
    let folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];
    folders
        .iter()
        .map(|folder| Path::new(folder).join(soname))
        .find(|path| path.exists())
        .unwrap_or_else(|| panic!("{soname} is missing: apt-get install {package}"))
}

pub fn jemalloc() -> PathBuf {
    peer("libjemalloc.so.2", "libjemalloc2")
}

/// ebbmalloc's preload object, built into the target folder of this test run unless EBB_LIB names one.
pub fn ebbmalloc() -> PathBuf {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY
        .get_or_init(|| {
            if let Some(path) = std::env::var_os("EBB_LIB") {
                return PathBuf::from(path);
            }
            let target = Path::new(env!("CARGO_BIN_EXE_ebb")).ancestors().nth(2).expect("target/debug/ebb");
            let status = Command::new(env!("CARGO"))
                .args(["build", "--release", "--quiet", "-p", "ebbmalloc-c", "--target-dir"])
                .arg(target)
                .current_dir(env!("CARGO_MANIFEST_DIR"))
                .status()
                .expect("cargo");
            assert!(status.success(), "ebbmalloc-c does not build");
            let library = target.join("release/libebbmalloc.so");
            assert!(library.exists(), "{} was not built", library.display());
            library
        })
        .clone()
}

/// A folder that all users may enter.
pub fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("its mode");
    folder
}

/// An executable file with this content.
pub fn script(folder: &TempDir, name: &str, text: &str) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, text).expect("a script");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("its mode");
    path
}

pub fn compile(folder: &TempDir, compiler: &str, name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let file = folder.path().join(format!("{name}.c"));
    fs::write(&file, source).expect("the source");
    let program = folder.path().join(name);
    let package = if compiler == "musl-gcc" { "musl-tools" } else { "gcc libc6-dev" };
    let built = Command::new(compiler)
        .arg(&file)
        .arg("-o")
        .arg(&program)
        .args(flags)
        .output()
        .unwrap_or_else(|error| panic!("{compiler}: {error}: apt-get install {package}"));
    assert!(built.status.success(), "{}", stderr(&built));
    program
}

/// Copies the libraries of a program to where they are found if `root` is the root.
#[allow(dead_code, reason = "for the tests of ebb check and ebb why")]
pub fn copy_libraries(program: &Path, root: &Path) {
    let listed = output(Command::new("ldd").arg(program));
    for file in stdout(&listed).split_whitespace().filter(|word| word.starts_with('/')) {
        let to = root.join(file.trim_start_matches('/'));
        fs::create_dir_all(to.parent().expect("a folder")).expect("the folder");
        fs::copy(file, to).expect("a copy");
    }
}

/// A program that allocates, says so, and sleeps for the given number of milliseconds.
pub const ALLOCATING: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv) {
    char *block = malloc(100000);
    memset(block, 1, 100000);
    puts(block[99999] == 1 ? "allocated" : "broken");
    fflush(stdout);
    usleep(1000 * (argc > 1 ? atoi(argv[1]) : 0));
    free(block);
    return 5;
}
"#;
