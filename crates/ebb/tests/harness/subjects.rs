//! Programs of processes to look at: built once.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tempfile::TempDir;

use crate::harness::{self, Subject};

/// Where the programs' sources are.
pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/why")
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

pub fn c_program() -> PathBuf {
    compiled("cases", "cases.c", &[])
}

pub fn copy(folder: &TempDir, name: &str) -> PathBuf {
    let program = folder.path().join(name);
    if !program.exists() {
        harness::copy_program(&c_program(), &program);
    }
    program
}

pub fn named(folder: &TempDir, name: &str, case: &str) -> Subject {
    Subject::start(Command::new(copy(folder, name)).arg(case))
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
    command.arg("-c").arg(fixtures().join("workers.py")).env("EBB_CASE", case).env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// The packages, besides the ones that every test needs, of a `program` of the table and of its preloaded objects.
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
    let interpreted = |interpreter: &str, file: &str| {
        let mut command = Command::new(interpreter);
        command.arg(fixtures().join(file));
        command
    };
    let mut command = match program.split_once(':') {
        Some(("gunicorn", case)) => gunicorn(case),
        Some((kind, case)) => {
            let (kind, case) = match kind {
                "rust" => case.split_once(':').expect("rust:ALLOCATOR:CASE"),
                _ => (kind, case),
            };
            let statically = ["-l:libjemalloc.a", "-lm", "-lstdc++"];
            let mut command = match kind {
                _ if program.starts_with("rust:") => Command::new(rust_program(kind)),
                "py" => interpreted("python3", "cases.py"),
                "second-py" => interpreted("python3", "second.py"),
                "c" => Command::new(c_program()),
                "static" => Command::new(compiled("static-cases", "cases.c", &["-static"])),
                "jemalloc" => Command::new(compiled("jemalloc-cases", "cases.c", &statically)),
                "musl" => Command::new(compiled_by("musl-gcc", "musl-cases", "cases.c", &[])),
                "musl-static" => {
                    let name = "musl-static-cases";
                    Command::new(compiled_by("musl-gcc", name, "cases.c", &["-static"]))
                }
                name => Command::new(compiled(name, &format!("{name}.c"), &[])),
            };
            command.arg(case);
            command
        }
        _ => match program.rsplit('.').next() {
            Some("js") => interpreted("node", program),
            Some("java") => interpreted("java", program),
            Some("rb") => interpreted("ruby", program),
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

/// A bundle for runc without its config.json: a root with these folders besides those of the machine's /usr.
pub fn bundle(folders: &[&str]) -> TempDir {
    let bundle = harness::folder();
    let root = bundle.path().join("rootfs");
    for folder in ["usr", "proc", "dev", "tmp"].iter().chain(folders) {
        std::fs::create_dir_all(root.join(folder)).expect("a folder");
    }
    for folder in ["bin", "lib", "lib64"] {
        let to = Path::new("usr").join(folder);
        std::os::unix::fs::symlink(to, root.join(folder)).expect("a link");
    }
    bundle
}

/// A memory cgroup of our own; removed in the end.
pub struct Cgroup(pub PathBuf);

impl Cgroup {
    /// Below the mount, where we may make one.
    pub fn new(name: &str) -> Option<Self> {
        let mounts = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"];
        let mount =
            mounts.iter().map(Path::new).find(|mount| mount.join("cgroup.procs").exists() && has_memory(mount))?;
        let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
        let folder = mount.join(format!("ebb-why-{}-{name}", std::process::id()));
        match std::fs::create_dir(&folder) {
            Ok(()) if folder.join("cgroup.procs").exists() => Some(Self(folder)),
            _ => {
                test_needs::note(&format!("no right to make a cgroup in {}", mount.display()));
                None
            }
        }
    }

    /// The command, started in it: a shell enters before anything is charged.
    pub fn with(&self, command: &Command) -> Command {
        let mut shell = Command::new("sh");
        shell
            .arg("-c")
            .arg(format!("echo $$ > {}/cgroup.procs && exec \"$@\"", self.0.display()))
            .arg("sh")
            .arg(command.get_program())
            .args(command.get_args());
        for (name, value) in command.get_envs() {
            shell.env(name, value.unwrap_or_default());
        }
        if let Some(folder) = command.get_current_dir() {
            shell.current_dir(folder);
        }
        shell
    }

    /// The bytes that are charged to it.
    pub fn usage(&self) -> u64 {
        let text = std::fs::read_to_string(self.file(["memory.current", "memory.usage_in_bytes"]));
        text.expect("its charge").trim().parse().expect("a number")
    }

    pub fn limit(&self, bytes: u64) -> std::io::Result<()> {
        let file = self.file(["memory.max", "memory.limit_in_bytes"]);
        std::fs::write(file, bytes.to_string())
    }

    fn file(&self, names: [&str; 2]) -> PathBuf {
        self.0.join(names[usize::from(!self.0.join(names[0]).exists())])
    }
}

fn has_memory(mount: &Path) -> bool {
    mount.join("memory.usage_in_bytes").exists()
        || std::fs::read_to_string(mount.join("cgroup.subtree_control")).is_ok_and(|text| text.contains("memory"))
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Its process is gone; the kernel takes a moment to see that.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
