//! Builds `programs/regions.c`, or its like in Rust, with an allocator and runs it in a state that a case names.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use ebb_inspect::{Heap, Target};

use crate::harness::{Process, build, source};

/// How the allocator comes into the program.
#[derive(Clone, Debug, PartialEq)]
pub enum Way {
    /// This library is put in front.
    Preload(PathBuf),
    /// The program is built by this compiler with these arguments, and has it inside.
    Built(&'static str, Vec<String>),
    /// The Rust program of `programs/inside` that has this allocator, with its symbols or without.
    Rust(&'static str, Symbols),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Symbols {
    Kept,
    Stripped,
}

/// A running program.
pub struct Program {
    process: Process,
    /// The file that its allocator lies in.
    pub file: PathBuf,
    /// The process to look at: its own, or that of a child.
    pub pid: i32,
}

impl Program {
    /// Starts `case` with the allocator that comes by `way`, under `settings` of the environment.
    pub fn start(way: &Way, case: &str, settings: &[(&str, &str)]) -> Self {
        let (program, library) = match way {
            Way::Preload(library) => (built("cc", &[]), Some(library.clone())),
            Way::Built(compiler, arguments) => (built(compiler, arguments), None),
            Way::Rust(name, symbols) => (rust(name, *symbols), None),
        };
        let mut command = Command::new(&program);
        command.arg(case).env_remove("LD_PRELOAD").env_remove("MALLOC_CONF");
        command.envs(settings.iter().copied());
        if let Some(library) = &library {
            command.env("LD_PRELOAD", library);
        }
        let mut process = Process::start(&mut command);
        let mut pid = process.pid();
        let mut line = process.line();
        if case == "fork" {
            pid = line.parse().unwrap();
            line = process.line();
        }
        assert_eq!(line, "ready", "{case}");
        Self { process, file: library.unwrap_or(program).canonicalize().unwrap(), pid }
    }

    /// The figures that it answers to `command`.
    pub fn ask(&mut self, command: u8) -> Vec<u64> {
        self.process.ask(command)
    }

    pub fn target(&self) -> Target {
        Target::open(self.pid).unwrap()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if self.process.pid() != self.pid {
            let child = nix::unistd::Pid::from_raw(self.pid);
            let _ = nix::sys::signal::kill(child, nix::sys::signal::Signal::SIGKILL);
        }
    }
}

fn built(compiler: &str, arguments: &[String]) -> PathBuf {
    static BUILD: Mutex<()> = Mutex::new(());
    let _alone = BUILD.lock().unwrap_or_else(PoisonError::into_inner);
    let name: String = format!("regions {compiler} {}", arguments.join(" "))
        .chars()
        .map(|it| if it.is_alphanumeric() { it } else { '-' })
        .collect();
    let mut command = Command::new(compiler);
    command.args(["-O1", "-pthread", "-fno-builtin"]).arg(source("regions.c")).args(arguments);
    build(&mut command, &name)
}

/// Whether a program of this way is made here: a Rust program takes minutes to build with its allocator, which is
/// for the long tests.
pub fn is_made<T>((way, _): &(Way, T)) -> bool {
    !matches!(way, Way::Rust(..)) || std::env::var_os("EBB_LONG").is_some()
}

fn rust(name: &str, symbols: Symbols) -> PathBuf {
    static BUILD: Mutex<()> = Mutex::new(());
    let _alone = BUILD.lock().unwrap_or_else(PoisonError::into_inner);
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("inside");
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/inside/Cargo.toml");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--locked", "--manifest-path", manifest]);
    let status = cargo.arg("--target-dir").arg(&target).status();
    assert!(status.expect("cargo").success(), "{manifest}");
    let program = target.join("debug").join(name);
    if symbols == Symbols::Kept {
        return program;
    }
    build(Command::new("strip").arg(&program), &format!("{name}-stripped"))
}

/// Debian's library `name` of `package`.
pub fn library(name: &str, package: &str) -> Way {
    let path = Path::new("/usr/lib/x86_64-linux-gnu").join(name);
    assert!(path.exists(), "{name} is missing: apt-get install {package}");
    Way::Preload(path)
}

/// The lines add up, are no more than what is mapped, and the classes are the live line.
pub fn assert_sound(heap: &Heap, target: &Target, what: &str) {
    let breakdown = &heap.breakdown;
    assert!(breakdown.adds_up(), "{what}: {breakdown:?}");
    let rss = target.process().status().unwrap().vmrss.unwrap() * 1024;
    assert!(breakdown.system.resident <= rss, "{what}: {breakdown:?} of {rss}");
    let blocks: u64 = heap.classes.values().map(|class| class.count).sum();
    assert_eq!(blocks, breakdown.live.chunks, "{what}");
}

/// Waits for what another thread of the program does; a minute, so that no machine is too slow.
pub fn wait_until(mut is_so: impl FnMut() -> bool) {
    for _ in 0..600 {
        if is_so() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    panic!("it did not happen within a minute");
}
