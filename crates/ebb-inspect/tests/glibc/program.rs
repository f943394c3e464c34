//! Builds `programs/heap.c` and runs it on a glibc, in a state that a case names.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use ebb_inspect::{Heap, Target, glibc};

use crate::harness::{Process, build, source};

/// A glibc to run on.
#[derive(Clone, Debug)]
pub struct Glibc {
    /// Its version; `None` for the machine's own, whatever that is.
    pub version: Option<String>,
    loader: Vec<PathBuf>,
    is_static: bool,
}

impl Glibc {
    /// The one in `folder`, with its own loader.
    pub fn in_folder(folder: &Path) -> Self {
        Self {
            version: None,
            loader: vec![folder.join("ld-linux-x86-64.so.2"), "--library-path".into(), folder.to_owned()],
            is_static: false,
        }
    }

    /// The machine's, linked into the program.
    pub fn inside() -> Self {
        Self { is_static: true, ..own() }
    }
}

/// The machine's glibc, and those in the folder `EBB_GLIBCS`.
pub fn all() -> Vec<Glibc> {
    let mut all = vec![own()];
    let Some(folder) = std::env::var_os("EBB_GLIBCS") else {
        return all;
    };
    for entry in std::fs::read_dir(folder).expect("EBB_GLIBCS is a folder") {
        let folder = entry.unwrap().path();
        all.push(Glibc {
            version: folder.file_name().map(|name| name.to_string_lossy().into()),
            ..Glibc::in_folder(&folder)
        });
    }
    assert!(all.len() > 1, "EBB_GLIBCS holds no glibc");
    all
}

/// The machine's glibc.
pub fn own() -> Glibc {
    Glibc { version: None, loader: Vec::new(), is_static: false }
}

/// What glibc says of its heap: mallinfo2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    pub system: u64,
    pub in_use: u64,
    pub free: u64,
    pub fastbins: u64,
    pub mmapped_chunks: u64,
    pub mmapped_bytes: u64,
}

/// A running case.
pub struct Program(Process);

impl Program {
    /// Starts `case` and waits until it is in its state.
    pub fn start(glibc: &Glibc, case: &str) -> Self {
        Self::start_with(glibc, case, |_| {})
    }

    /// The same, with a change of how it is started.
    pub fn start_with(glibc: &Glibc, case: &str, change: impl FnOnce(&mut Command)) -> Self {
        let program = if glibc.is_static { built_static() } else { built() };
        let mut command = match glibc.loader.split_first() {
            Some((loader, arguments)) => {
                let mut command = Command::new(loader);
                command.args(arguments).arg(program);
                command
            }
            None => Command::new(program),
        };
        command.arg(case);
        change(&mut command);
        let mut program = Self(Process::start(&mut command));
        assert_eq!(program.0.line(), "ready", "{case}");
        program
    }

    pub fn pid(&self) -> i32 {
        self.0.pid()
    }

    /// Its heap, read from here.
    pub fn read(&self) -> Heap {
        glibc::read(&Target::open(self.pid()).unwrap()).unwrap()
    }

    pub fn info(&mut self) -> Info {
        let figures = self.0.ask(b'i');
        let [system, in_use, free, fastbins, mmapped_chunks, mmapped_bytes] = figures[..] else {
            panic!("six figures: {figures:?}");
        };
        Info { system, in_use, free, fastbins, mmapped_chunks, mmapped_bytes }
    }

    /// Calls malloc_trim; resident bytes before and after.
    pub fn trim(&mut self) -> (u64, u64) {
        let figures = self.0.ask(b't');
        (figures[0] * 1024, figures[1] * 1024)
    }

    pub fn kill(&mut self) {
        self.0.kill();
    }
}

/// Copies a file that will be run. Not by this process: a child that another test starts meanwhile would hold the
/// copy open for writing, and what is open for writing cannot be run.
pub fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").arg(from).arg(to).status();
    assert!(status.unwrap().success());
}

/// Runs `command` as the user who owns nothing.
pub fn as_nobody(command: &mut Command) {
    command.uid(65534).gid(65534);
}

/// The program, built once. Linked against the oldest glibc in `EBB_GLIBCS`, it runs on all of them.
fn built() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let mut compiler = compiler();
        if let Some(folder) = std::env::var_os("EBB_GLIBCS") {
            link_with(&mut compiler, &oldest(Path::new(&folder)));
        }
        build(&mut compiler, "heap")
    })
}

fn built_static() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| build(compiler().arg("-static"), "heap-static"))
}

fn compiler() -> Command {
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-Wall", "-Werror", "-Wno-deprecated-declarations", "-pthread"]);
    compiler.arg(source("heap.c"));
    compiler
}

fn oldest(folder: &Path) -> PathBuf {
    let folders = std::fs::read_dir(folder).unwrap();
    folders.map(|entry| entry.unwrap().path()).min().unwrap()
}

/// With the start files of this machine, which are the same for all versions.
fn link_with(compiler: &mut Command, glibc: &Path) {
    let file = |name: &str| {
        let found = Command::new("cc").arg(format!("-print-file-name={name}")).output();
        String::from_utf8(found.unwrap().stdout).unwrap().trim().to_owned()
    };
    compiler.args(["-nostdlib", "-no-pie", "-Wl,--allow-shlib-undefined"]);
    compiler.args([file("crt1.o"), file("crti.o"), file("crtn.o")]);
    compiler.args([glibc.join("libc.so.6"), glibc.join("libpthread.so.0")]);
    compiler.arg("-lgcc");
}
