//! The two libraries under the suite, and a program on one of them.

use std::env;
use std::env::consts::ARCH;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::harness::library::build;
use crate::harness::{Flavour, Run, Scratch, archive, program_with};

/// Whose libjemalloc.so.2 the loader finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Library {
    Jemalloc,
    Ebbmalloc,
}

impl Library {
    /// The folder for LD_LIBRARY_PATH.
    pub fn folder(self) -> PathBuf {
        match self {
            Self::Ebbmalloc => installation().join("lib"),
            Self::Jemalloc => jemalloc_folder().to_owned(),
        }
    }

    /// A case of a program of `tests/programs/jemalloc` with these settings, in a folder of its own.
    pub fn run(self, [program, case]: [&str; 2], settings: Settings, folder: &Scratch) -> Run {
        let folder_of_library = self.folder();
        let file = folder_of_library.join("libjemalloc.so.2");
        let file = file.canonicalize().unwrap_or_else(|error| {
            panic!("{}: {error}", file.display());
        });
        let (compiled, environment) = match settings {
            Settings::Environment(settings) => ("", settings),
            Settings::Compiled(settings) => (settings, ""),
            Settings::Both { compiled, environment } => (compiled, environment),
        };
        let run = Run::bare(executable(program, compiled))
            .arg(case)
            .env("LD_LIBRARY_PATH", folder_of_library)
            .env("EBB_TEST_LIBRARY", file)
            .folder(folder.path());
        if environment.is_empty() { run } else { run.env("MALLOC_CONF", environment) }
    }
}

/// Where a program has its settings from: `MALLOC_CONF`, or compiled into its variable `malloc_conf`.
#[derive(Clone, Copy)]
pub enum Settings {
    Environment(&'static str),
    Compiled(&'static str),
    Both { compiled: &'static str, environment: &'static str },
}

/// One executable for both libraries: compiled with the installed header, linked to jemalloc.
fn executable(name: &str, compiled: &str) -> PathBuf {
    let include = format!("-I{}", installation().join("include").display());
    let linked = jemalloc_folder().join("libjemalloc.so.2");
    let linked = linked.display().to_string();
    let settings = format!("-DCOMPILED_SETTINGS=\"{compiled}\"");
    let all = [&*include, &*linked, &*settings];
    let arguments = if compiled.is_empty() { &all[..2] } else { &all[..] };
    program_with(&format!("jemalloc/{name}"), Flavour::Plain, arguments)
}

/// The folder of an installation for programs that are linked to libjemalloc.so.2, of the release
/// profile like the archive in it.
pub fn installation() -> &'static Path {
    static INSTALLATION: OnceLock<PathBuf> = OnceLock::new();
    INSTALLATION.get_or_init(|| {
        archive();
        build("build", "release", &[]);
        let built = build("build", "release", &["--package", "ebbmalloc-compat"]);
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("installation-{}", std::process::id()));
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ci/install-compat.sh");
        let status = Command::new(&script).arg(&prefix).arg(&built).status();
        assert!(status.is_ok_and(|status| status.success()), "{} failed", script.display());
        prefix
    })
}

/// A folder that holds jemalloc's libjemalloc.so.2 and nothing else.
fn jemalloc_folder() -> &'static Path {
    static FOLDER: OnceLock<(Scratch, PathBuf)> = OnceLock::new();
    &FOLDER
        .get_or_init(|| {
            let file = match env::var_os("EBB_TEST_JEMALLOC") {
                Some(named) => PathBuf::from(named),
                None => PathBuf::from(format!("/usr/lib/{ARCH}-linux-gnu/libjemalloc.so.2")),
            };
            assert!(
                file.is_file(),
                "no jemalloc at {}: apt-get install libjemalloc2",
                file.display()
            );
            let scratch = Scratch::new();
            let link = scratch.path().join("libjemalloc.so.2");
            symlink(&file, &link).expect("a link in the scratch folder");
            let folder = scratch.path().to_owned();
            (scratch, folder)
        })
        .1
}
