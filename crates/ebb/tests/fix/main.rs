//! `ebb fix` on files as they are in the wild: what it shows, that it settles them, that the check agrees, that it takes
//! back what it wrote. `case.rs` reads the cases of `tests/fixtures/fix`.

// Half of it is for `ebb run`.
#[allow(dead_code)]
#[path = "../harness/mod.rs"]
mod harness;

mod case;
mod python;
mod starts;
mod writing;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use harness::{ebb, folder, output};

/// A folder of files, and one for the records of what is written.
struct Place {
    folder: TempDir,
    state: TempDir,
}

impl Place {
    fn with(files: &[(&str, &str)]) -> Self {
        let place = Self { folder: folder(), state: folder() };
        for (name, text) in files {
            place.write(name, text);
        }
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }

    /// The text of a file.
    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("a text")
    }

    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        files_in(self.folder.path())
    }

    fn command<S: AsRef<std::ffi::OsStr>>(&self, verb: &str, arguments: &[S]) -> Command {
        let mut command = ebb();
        command
            .arg(verb)
            .args(arguments)
            .current_dir(self.folder.path())
            .env("XDG_STATE_HOME", self.state.path())
            .env("EBB_LIB", harness::ebbmalloc())
            .env_remove("RUST_BACKTRACE");
        command
    }

    fn fix<S: AsRef<std::ffi::OsStr>>(&self, arguments: &[S]) -> Output {
        output(&mut self.command("fix", arguments))
    }

    fn records(&self) -> usize {
        files_in(self.state.path()).len()
    }
}

fn files_in(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let walk = walkdir::WalkDir::new(folder).into_iter().flatten();
    let files = walk.filter(|it| it.file_type().is_file());
    let named = files.map(|it| {
        let name = it.path().strip_prefix(folder).expect("below").to_owned();
        (name, fs::read(it.path()).expect("a file"))
    });
    named.collect()
}

/// Asserts how it ended, with the whole output in the message.
#[track_caller]
fn assert_code(output: &Output, code: i32) {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "stdout:\n{out}\nstderr:\n{err}");
}
