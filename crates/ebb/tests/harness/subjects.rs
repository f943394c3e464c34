//! Processes to look at: built once, started, waited for, ended.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

use tempfile::TempDir;

use crate::harness;

/// Where the programs' sources are.
pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/why")
}

/// A running process that has said that it is ready. Ends with this value.
pub struct Subject(pub Child);

impl Subject {
    /// Starts it and waits for its word.
    pub fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}: ci/install.sh"));
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        assert_eq!(line.trim(), "ready", "{command:?}");
        Self(child)
    }

    pub fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        // Asked first, so that one with workers ends them as well.
        let pid = nix::unistd::Pid::from_raw(self.0.id().cast_signed());
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        for _ in 0..100 {
            if !matches!(self.0.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The folder of what is built here, for all tests of this program.
fn builds() -> &'static TempDir {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    FOLDER.get_or_init(harness::folder)
}

/// The C program `name`, made of the file `source` at the first use.
pub fn compiled(name: &str, source: &str, flags: &[&str]) -> PathBuf {
    compiled_by("gcc", name, source, flags)
}

fn compiled_by(compiler: &str, name: &str, source: &str, flags: &[&str]) -> PathBuf {
    static BUILD: Mutex<()> = Mutex::new(());
    let _alone = BUILD.lock().unwrap_or_else(PoisonError::into_inner);
    let program = builds().path().join(name);
    if !program.exists() {
        let source = std::fs::read_to_string(fixtures().join(source)).expect("the source");
        let headers = format!("-I{}", fixtures().display());
        let flags = [&["-O1", "-pthread", &headers], flags].concat();
        harness::compile(builds(), compiler, name, &source, &flags);
    }
    program
}

/// The C program of cases.
pub fn c_program() -> PathBuf {
    compiled("cases", "cases.c", &[])
}

/// A program of one file, compiled for its case.
fn built_c(name: &str) -> Command {
    Command::new(compiled(name, &format!("{name}.c"), &[]))
}

/// The program of cases, statically linked.
fn static_program() -> PathBuf {
    compiled("static-cases", "cases.c", &["-static"])
}

/// A Rust program with `allocator` inside, shared with ebb-inspect's tests, which say what its cases are.
fn rust_program(allocator: &str) -> PathBuf {
    static BUILD: OnceLock<PathBuf> = OnceLock::new();
    let programs = BUILD.get_or_init(|| {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR"));
        let manifest = crates.join("../ebb-inspect/tests/programs/inside/Cargo.toml");
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("inside");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--locked", "--manifest-path"]);
        cargo.arg(&manifest).arg("--target-dir").arg(&target);
        let status = cargo.status().expect("cargo");
        assert!(status.success(), "{} does not build", manifest.display());
        target.join("debug")
    });
    programs.join(allocator)
}

/// gunicorn with four workers of another user, which only root may start.
pub fn gunicorn(case: &str) -> Command {
    let mut command = Command::new("gunicorn");
    command
        .arg("-c")
        .arg(fixtures().join("workers.py"))
        .env("EBB_CASE", case)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// The packages, beyond those that every test needs, of a `program` of the table and of what is preloaded.
pub fn packages(program: &str, preload: Option<&str>) -> Vec<&'static str> {
    let named = match program.split_once(':') {
        Some(("jemalloc", _)) => Some("libjemalloc-dev"),
        Some(("musl" | "musl-static", _)) => Some("musl-tools"),
        Some(("gunicorn", _)) => Some("gunicorn"),
        _ => match program.rsplit('.').next() {
            Some("js") => Some("nodejs"),
            Some("java") => Some("default-jdk-headless"),
            Some("rb") => Some("ruby"),
            Some("go") => Some("golang-go"),
            _ => None,
        },
    };
    let preloaded = match preload {
        Some("mimalloc") => Some("libmimalloc2.0"),
        Some("tcmalloc") => Some("libtcmalloc-minimal4"),
        _ => None,
    };
    named.into_iter().chain(preloaded).collect()
}

/// The command for a `program` of the table.
pub fn command(program: &str) -> Command {
    let built = |compiler: &str, arguments: &[&str]| {
        let target = builds().path().join(program.replace('.', "-"));
        let output = Command::new(compiler)
            .args(arguments)
            .arg("-o")
            .arg(&target)
            .arg(fixtures().join(program))
            .env("GOCACHE", builds().path().join("go"))
            .output()
            .unwrap_or_else(|error| panic!("{compiler}: {error}"));
        assert!(output.status.success(), "{}", harness::stderr(&output));
        Command::new(target)
    };
    let interpreted = |interpreter: &str| {
        let mut command = Command::new(interpreter);
        command.arg(fixtures().join(program));
        command
    };
    let mut command = match program.split_once(':') {
        Some(("c", case)) => {
            let mut command = Command::new(c_program());
            command.arg(case);
            command
        }
        Some((name @ ("second" | "returns" | "evidence"), case)) => {
            let mut command = built_c(name);
            command.arg(case);
            command
        }
        Some(("second-py", case)) => {
            let mut command = Command::new("python3");
            command.arg(fixtures().join("second.py")).arg(case);
            command
        }
        Some(("static", case)) => {
            let mut command = Command::new(static_program());
            command.arg(case);
            command
        }
        Some(("jemalloc", case)) => {
            let flags = ["-l:libjemalloc.a", "-lm", "-lstdc++"];
            let mut command = Command::new(compiled("jemalloc-cases", "cases.c", &flags));
            command.arg(case);
            command
        }
        Some(("musl", case)) => {
            let program = compiled_by("musl-gcc", "musl-cases", "cases.c", &[]);
            let mut command = Command::new(program);
            command.arg(case);
            command
        }
        Some(("musl-static", case)) => {
            let program = compiled_by("musl-gcc", "musl-static-cases", "cases.c", &["-static"]);
            let mut command = Command::new(program);
            command.arg(case);
            command
        }
        Some(("rust", words)) => {
            let (allocator, case) = words.split_once(':').expect("rust:ALLOCATOR:CASE");
            let mut command = Command::new(rust_program(allocator));
            command.arg(case);
            command
        }
        Some(("gunicorn", case)) => gunicorn(case),
        Some(("py", case)) => {
            let mut command = Command::new("python3");
            command.arg(fixtures().join("cases.py")).arg(case);
            command
        }
        _ => match program.rsplit('.').next() {
            Some("js") => interpreted("node"),
            Some("java") => interpreted("java"),
            Some("rb") => interpreted("ruby"),
            Some("go") => built("go", &["build"]),
            Some("c") => built("gcc", &["-O1"]),
            Some("rs") => built("rustc", &["--edition", "2024", "-O"]),
            _ => panic!("{program}: of no known kind"),
        },
    };
    for name in ["LD_PRELOAD", "MALLOC_ARENA_MAX", "PYTHONMALLOC"] {
        command.env_remove(name);
    }
    command
}

/// The library that puts an allocator in front of a program.
pub fn preload(allocator: &str) -> PathBuf {
    match allocator {
        "ebbmalloc" => harness::ebbmalloc(),
        "jemalloc" => harness::jemalloc(),
        "mimalloc" => harness::peer("libmimalloc.so.2.0", "libmimalloc2.0"),
        "tcmalloc" => harness::peer("libtcmalloc_minimal.so.4", "libtcmalloc-minimal4"),
        other => panic!("{other}: no such allocator"),
    }
}
