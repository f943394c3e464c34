//! Runs of a program under the preload: environment, time limit, captured output, and the proof
//! that the allocator under test was in charge.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{Flavour, archive, library, program, shared_object};

/// Whether the long counts are asked for.
pub fn long() -> bool {
    env::var_os("EBB_LONG").is_some_and(|value| value == "1")
}

/// A count for a test, and the one of a long run.
pub fn scaled(normal: &'static str, longer: &'static str) -> &'static str {
    if long() { longer } else { normal }
}

/// Where PROGRAM is; a missing one fails the test with its Debian package.
pub fn require(program: &str, package: &str) -> PathBuf {
    env::var_os("PATH")
        .iter()
        .flat_map(|path| env::split_paths(path).collect::<Vec<_>>())
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
        .unwrap_or_else(|| {
            panic!("{program} is not installed: apt-get install {package}");
        })
}

/// A folder of a test's own, removed when the test passed.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("scratch-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).expect("a scratch folder");
        Self(folder)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file into the folder and returns its path.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a folder for the file");
        fs::write(&path, text).expect("a file in the scratch folder");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !thread::panicking() {
            // What cannot be removed lies in cargo's own folder for tests and does no harm.
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

/// A program about to run. Built up by the methods, then `run` or `spawn`.
pub struct Run {
    program: OsString,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    wrapper: Vec<OsString>,
    preload: Vec<PathBuf>,
    witness: Option<Scratch>,
    folder: Option<PathBuf>,
    limit: Duration,
}

impl Run {
    /// PROGRAM under the library under test.
    pub fn preloaded(program: impl AsRef<OsStr>) -> Self {
        let mut run = Self::bare(program);
        run.preload.push(library().to_owned());
        run
    }

    /// A program of `tests/programs` and its arguments, separated by blanks, under the library under test.
    pub fn program(command: &str) -> Self {
        Self::case(Flavour::Plain, command).expect("a plain program needs nothing else")
    }

    /// The same in a flavour; a static program has the archive inside. `None`, and a skip in the list, where a package
    /// is missing.
    pub fn case(flavour: Flavour, command: &str) -> Option<Self> {
        let is_static = matches!(flavour, Flavour::StaticGlibc | Flavour::StaticMusl);
        let needs_musl = matches!(flavour, Flavour::Musl | Flavour::StaticMusl);
        if needs_musl && !test_needs::installed(&["musl-tools"]) {
            return None;
        }
        let mut words = command.split_whitespace();
        let file = program(words.next().expect("a program"), flavour);
        if is_static {
            let names = Command::new("nm").arg(&file).output().expect("nm runs").stdout;
            let holds_archive = String::from_utf8_lossy(&names).contains("ebbmalloc");
            assert!(holds_archive, "{} lacks {}", file.display(), archive().display());
        }
        let run = if is_static { Self::bare(file) } else { Self::preloaded(file) };
        Some(run.args(words))
    }

    /// A real program under the library under test together with the witness, so that
    /// [`Outcome::in_charge_of`] can tell in which programs the library was in charge.
    pub fn witnessed(program: impl AsRef<OsStr>) -> Self {
        let mut run = Self::preloaded(program);
        run.preload.push(shared_object("witness", &["-ldl"]));
        let scratch = Scratch::new();
        let file = scratch.path().join("witness");
        run.witness = Some(scratch);
        run.env("EBB_TEST_WITNESS", file)
    }

    /// PROGRAM on the system's own allocator.
    pub fn bare(program: impl AsRef<OsStr>) -> Self {
        Self {
            program: program.as_ref().to_owned(),
            arguments: Vec::new(),
            environment: Vec::new(),
            wrapper: Vec::new(),
            preload: Vec::new(),
            witness: None,
            folder: None,
            limit: Duration::from_secs(if long() { 1800 } else { 300 }),
        }
    }

    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    pub fn args<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        let owned = arguments.into_iter().map(|one| one.as_ref().to_owned());
        self.arguments.extend(owned);
        self
    }

    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.into(), value.as_ref().to_owned()));
        self
    }

    pub fn folder(mut self, folder: impl AsRef<Path>) -> Self {
        self.folder = Some(folder.as_ref().to_owned());
        self
    }

    /// Preloads one more object, before or after the library under test.
    pub fn beside(mut self, object: PathBuf, first: bool) -> Self {
        let place = if first { 0 } else { self.preload.len() };
        self.preload.insert(place, object);
        self
    }

    /// A command that executes the program, itself without the preload (`prlimit`, `setpriv`).
    pub fn through<A: AsRef<OsStr>>(mut self, wrapper: impl IntoIterator<Item = A>) -> Self {
        self.wrapper = wrapper.into_iter().map(|one| one.as_ref().to_owned()).collect();
        self
    }

    /// How long the program may run; it is killed then, and the test fails.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// The command, in a process group of its own so that all it starts can be ended.
    fn command(&self) -> Command {
        let mut environment = self.environment.clone();
        if !self.preload.is_empty() {
            let list = self.preload.iter().map(|object| object.as_os_str()).collect::<Vec<_>>().join(OsStr::new(":"));
            environment.push(("LD_PRELOAD".into(), list));
        }
        // The first, so that a run that names another library says so.
        environment.insert(0, ("EBB_TEST_LIBRARY".into(), library().into()));
        if super::is_foreign() {
            environment.push(("EBB_TEST_FOREIGN_ALLOCATOR".into(), "1".into()));
        }
        let mut command = Command::new(self.wrapper.first().unwrap_or(&self.program));
        // Settings in the environment of the tests must not reach the programs.
        for inherited in ["EBB_CONF", "MALLOC_CONF", "GLIBC_TUNABLES", "PYTHONMALLOC"] {
            command.env_remove(inherited);
        }
        if self.wrapper.is_empty() {
            command.envs(environment);
        } else {
            command.args(&self.wrapper[1..]).arg("env");
            for (name, value) in environment {
                let mut pair = name;
                pair.push("=");
                pair.push(value);
                command.arg(pair);
            }
            command.arg(&self.program);
        }
        command.args(&self.arguments).stdin(Stdio::null()).process_group(0);
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        command
    }

    /// Starts the program; its output is the caller's affair.
    pub fn spawn(self) -> Running {
        let child = self
            .command()
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", self.program.display()));
        Running { child, run: self }
    }

    /// Runs the program to its end.
    pub fn run(self) -> Outcome {
        let name = self.program.display().to_string();
        let mut child = self
            .command()
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let stdout = drain(child.stdout.take().expect("a pipe was asked for"));
        let stderr = drain(child.stderr.take().expect("a pipe was asked for"));
        let start = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().expect("the child is ours") {
                break Some(status);
            }
            if start.elapsed() > self.limit {
                end_group(&mut child);
                break None;
            }
            thread::sleep(Duration::from_millis(5));
        };
        Outcome {
            name: format!("{name} {:?}", self.arguments),
            status,
            stdout: stdout.join().expect("the reader does not panic"),
            stderr: stderr.join().expect("the reader does not panic"),
            testimony: self
                .witness
                .map(|scratch| fs::read_to_string(scratch.path().join("witness")).unwrap_or_default()),
        }
    }
}

fn drain(mut pipe: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // A pipe that breaks has said all it will say.
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Kills the child's process group: the child leads it.
fn end_group(child: &mut Child) {
    let _ = Command::new("kill").args(["-KILL", "--", &format!("-{}", child.id())]).stderr(Stdio::null()).status();
    let _ = child.wait();
}

/// A program that is running; killed with all it started when it is dropped.
pub struct Running {
    pub child: Child,
    run: Run,
}

impl Running {
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether the library is mapped in this process of the program.
    pub fn maps_library(&self, process: u32) -> bool {
        let wanted = self.run.preload.first().expect("a preloaded program");
        fs::read_to_string(format!("/proc/{process}/maps")).is_ok_and(|maps| maps.contains(&*wanted.to_string_lossy()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        end_group(&mut self.child);
    }
}

/// How a run ended and what it said.
#[derive(Debug)]
pub struct Outcome {
    pub name: String,
    /// None when it ran past its time limit and was killed.
    pub status: Option<ExitStatus>,
    pub stdout: String,
    pub stderr: String,
    testimony: Option<String>,
}

impl Outcome {
    /// Status 0.
    #[track_caller]
    pub fn succeeded(self) -> Self {
        assert!(self.status.is_some_and(|status| status.success()), "{}", self.describe());
        self
    }

    /// Status 0 and, as its last line, the program's own verdict.
    #[track_caller]
    pub fn passed(self) -> Self {
        let outcome = self.succeeded();
        assert!(outcome.stdout.ends_with("ok\n"), "no verdict: {}", outcome.describe());
        outcome
    }

    /// Ended by this signal.
    #[track_caller]
    pub fn killed_by(self, signal: i32) -> Self {
        let by = self.status.and_then(|status| status.signal());
        assert_eq!(by, Some(signal), "{}", self.describe());
        self
    }

    /// The library was in charge wherever an executable of this name (or beginning so) ran.
    #[track_caller]
    pub fn in_charge_of(self, executable: &str) -> Self {
        let testimony = self.testimony.as_deref().expect("a witnessed run");
        let seen: Vec<_> = testimony
            .lines()
            .filter_map(|line| line.split_once('\t'))
            .filter(|(name, _)| name.starts_with(executable))
            .collect();
        assert!(!seen.is_empty(), "{executable} never ran: {testimony}");
        let wanted = library().to_string_lossy();
        assert!(seen.iter().all(|&(_, file)| file == wanted), "malloc of {executable} came from elsewhere: {seen:?}");
        self
    }

    /// How many programs of this name started under the preload.
    pub fn starts_of(&self, executable: &str) -> usize {
        self.testimony
            .iter()
            .flat_map(|testimony| testimony.lines())
            .filter(|line| line.starts_with(executable))
            .count()
    }

    pub fn describe(&self) -> String {
        let end = match self.status {
            Some(status) => status.to_string(),
            None => "killed at its time limit".to_owned(),
        };
        format!("{}: {end}\n--- stdout\n{}\n--- stderr\n{}", self.name, tail(&self.stdout), tail(&self.stderr))
    }
}

/// The last part of a long output.
fn tail(text: &str) -> &str {
    let mut start = text.len().saturating_sub(4000);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}
