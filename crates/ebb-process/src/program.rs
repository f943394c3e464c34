//! From a command to the program that the kernel will run: search in PATH, scripts followed to their
//! interpreter, and what keeps the loader from preloading anything.
//!
//! Used before a program is started, to refuse what would silently run without its allocator.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

use super::elf::{Elf, ElfError};

mod secure;

pub use secure::{Privilege, privilege_gained};

/// The kernel follows no more interpreters than this either.
const MAX_INTERPRETERS: usize = 5;
/// What the kernel reads of a script's first line.
const FIRST_LINE_BYTES: u64 = 256;

/// The program file that a command starts.
#[derive(Clone, Debug)]
pub struct Program {
    /// The file to execute.
    pub path: PathBuf,
    /// Whether `/bin/sh` has to read it: a script without a first line that names an interpreter.
    pub by_shell: bool,
    /// The ELF program that runs in the end: the file itself, or its interpreter.
    pub image: PathBuf,
    /// The facts of `image`.
    pub elf: Elf,
}

/// Why a command cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// There is no such command.
    #[error("{name}: {what}", name = .0.display(), what = .1)]
    NotFound(PathBuf, String),
    /// It is there but cannot be executed.
    #[error("{name}: {what}", name = .0.display(), what = .1)]
    NotExecutable(PathBuf, String),
}

impl Program {
    /// What `command` comes to, searched for in `search_path` (the PATH that it will run with).
    pub fn find(command: &OsStr, search_path: &OsStr) -> Result<Self, ProgramError> {
        let path = locate(command, search_path)?;
        let mut image = path.clone();
        let mut by_shell = false;
        for _ in 0..MAX_INTERPRETERS {
            match Elf::read(&image) {
                Ok(elf) => {
                    check_loader(&image, &elf)?;
                    return Ok(Self { path, by_shell, image, elf });
                }
                Err(ElfError::Io(error)) => return Err(not_executable(&image, error)),
                Err(ElfError::Format(error)) => {
                    let line = first_line(&image).map_err(|error| not_executable(&image, error))?;
                    let interpreter = match Interpreter::parse(&line) {
                        Some(interpreter) => interpreter,
                        // As execvp and every shell do.
                        None if image == path && !line.contains(&0) => {
                            by_shell = true;
                            Interpreter::file("/bin/sh")
                        }
                        None => return Err(not_executable(&image, error)),
                    };
                    image = interpreter.locate(&image, search_path)?;
                }
            }
        }
        Err(not_executable(&path, "too many interpreters in a row"))
    }
}

fn not_executable(path: &Path, why: impl ToString) -> ProgramError {
    ProgramError::NotExecutable(path.to_owned(), why.to_string())
}

/// The PATH of this process.
pub fn search_path() -> OsString {
    std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into())
}

/// The file that a command's name stands for. A file that may not be executed does not end the
/// search, but is named where no other is found, as shells do.
pub fn locate(command: &OsStr, search_path: &OsStr) -> Result<PathBuf, ProgramError> {
    let not_found = |what: &str| ProgramError::NotFound(command.into(), what.to_owned());
    if command.is_empty() {
        return Err(not_found("the command is empty"));
    }
    if command.as_bytes().contains(&b'/') {
        let path = PathBuf::from(command);
        return match executable(&path) {
            Ok(()) => Ok(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(not_found("no such file")),
            Err(error) => Err(not_executable(&path, error)),
        };
    }
    let mut refused = None;
    for folder in std::env::split_paths(search_path) {
        let folder = if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder };
        let path = folder.join(command);
        match executable(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                refused.get_or_insert_with(|| not_executable(&path, error));
            }
        }
    }
    Err(refused.unwrap_or_else(|| not_found("no such command in PATH")))
}

fn executable(path: &Path) -> io::Result<()> {
    if fs::metadata(path)?.is_dir() {
        return Err(io::Error::other("is a folder"));
    }
    access(path, AccessFlags::X_OK)?;
    Ok(())
}

/// A program whose loader is missing fails with "no such file", which misleads everybody.
fn check_loader(image: &Path, elf: &Elf) -> Result<(), ProgramError> {
    match &elf.interpreter {
        Some(loader) if !loader.exists() => Err(not_executable(
            image,
            format!("its loader {} is not installed (a program for another libc or architecture)", loader.display()),
        )),
        _ => Ok(()),
    }
}

fn first_line(path: &Path) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    File::open(path)?.take(FIRST_LINE_BYTES).read_to_end(&mut start)?;
    let end = start.iter().position(|&byte| byte == b'\n');
    start.truncate(end.unwrap_or(start.len()));
    Ok(start)
}

/// What a script's first line asks for.
#[derive(Debug, PartialEq, Eq)]
enum Interpreter {
    /// This file.
    File(PathBuf),
    /// The first of that name in PATH, as `env NAME` takes it.
    InPath(OsString),
}

impl Interpreter {
    fn file(path: &str) -> Self {
        Self::File(PathBuf::from(path))
    }

    /// Reads `#!/path [argument]`; through `env`, to the program that env will start.
    fn parse(line: &[u8]) -> Option<Self> {
        let rest = line.strip_prefix(b"#!")?;
        let mut words = rest.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
        let path = words.next()?;
        if path.rsplit(|&byte| byte == b'/').next() != Some(b"env") {
            return Some(Self::File(PathBuf::from(OsString::from_vec(path.to_vec()))));
        }
        let started = words
            .map(|word| word.strip_prefix(b"-S").unwrap_or(word))
            .find(|word| !word.is_empty() && !word.starts_with(b"-") && !word.contains(&b'='));
        Some(match started {
            Some(name) => Self::InPath(OsString::from_vec(name.to_vec())),
            None => Self::File(PathBuf::from(OsString::from_vec(path.to_vec()))),
        })
    }

    fn locate(self, script: &Path, search_path: &OsStr) -> Result<PathBuf, ProgramError> {
        let (name, found) = match self {
            Self::File(path) => {
                (path.display().to_string(), { executable(&path).map(|()| path).map_err(|error| error.to_string()) })
            }
            Self::InPath(name) => {
                (name.to_string_lossy().into_owned(), locate(&name, search_path).map_err(|error| error.to_string()))
            }
        };
        found.map_err(|error| not_executable(script, format!("its interpreter {name} cannot be run: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_a_script_names_its_interpreter() {
        let parse = |line: &str| Interpreter::parse(line.as_bytes());
        assert_eq!(parse("#!/bin/sh"), Some(Interpreter::file("/bin/sh")));
        assert_eq!(parse("#! /bin/sh -e"), Some(Interpreter::file("/bin/sh")));
        let python = || Some(Interpreter::InPath("python3".into()));
        assert_eq!(parse("#!/usr/bin/env python3"), python());
        assert_eq!(parse("#!/usr/bin/env -S python3 -u"), python());
        assert_eq!(parse("#!/usr/bin/env -S A=1 python3"), python());
        assert_eq!(parse("#!/usr/bin/env -Spython3"), python());
        assert_eq!(parse("#!"), None);
        assert_eq!(parse("echo hello"), None);
    }

    #[test]
    fn a_command_is_searched_for_in_the_path_given() {
        let folder = tempfile::tempdir().unwrap();
        let error = Program::find(OsStr::new("sh"), folder.path().as_os_str()).unwrap_err();
        assert!(matches!(error, ProgramError::NotFound(..)), "{error}");
        let found = Program::find(OsStr::new("sh"), OsStr::new("/bin")).unwrap();
        assert_eq!(found.path, Path::new("/bin/sh"));
        assert!(!found.elf.is_static());
    }

    #[test]
    fn a_text_without_interpreter_is_read_by_the_shell_and_rubbish_by_nobody() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &[u8]| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            path.into_os_string()
        };
        let script = Program::find(&file("script", b"exit 3\n"), OsStr::new("/bin")).unwrap();
        assert!(script.by_shell);
        let rubbish = Program::find(&file("rubbish", &[0, 1, 2, 3]), OsStr::new("/bin"));
        assert!(matches!(rubbish, Err(ProgramError::NotExecutable(..))));
        let endless = file("endless", b"");
        let text = format!("#!{}\n", endless.to_string_lossy());
        fs::write(&endless, text).unwrap();
        let endless = Program::find(&endless, OsStr::new("/bin")).unwrap_err();
        assert!(endless.to_string().contains("too many"), "{endless}");
    }
}
