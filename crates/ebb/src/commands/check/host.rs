//! This machine, for files of services that run on it: whether the library is here, and whether the loader would put it
//! in charge of the service's program.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use ebb_deploy::check::Finding;
use ebb_deploy::check::declared::{Host, Service};
use ebb_deploy::check::library::{EntryFile, Target};
use ebb_deploy::check::process::Wanted;
use ebb_process::elf::Elf;
use ebb_process::machine::page_bytes;
use ebb_process::root::Root;

use super::entry::Loader;
use super::root::{Program, Source, is_of_program, refusal};

/// This machine, with a file that will be there.
pub(super) struct ThisMachine<'a> {
    pub(super) placed: Option<&'a Path>,
}

impl Host for ThisMachine<'_> {
    fn has(&self, path: &str) -> bool {
        self.placed == Some(Path::new(path)) || Path::new(path).exists()
    }

    fn refuses(&self, service: &Service, entry: &str) -> Option<Finding> {
        let words = service.start.as_ref().map(|it| it.words.as_slice());
        let named = program(words.unwrap_or_default());
        // Of a program that is not known only the architecture counts, which is the shell's.
        let path = named.clone().or_else(|| located("sh"))?;
        let elf = Elf::read(&path).ok()?;
        let root = Root::own();
        let entry = Loader::of(&root, &elf).entry(entry);
        if matches!(entry.file, EntryFile::Missing) {
            return None;
        }
        let wanted = Wanted::from_preload(std::slice::from_ref(&entry))?;
        let target = Target::of(&elf, Some(page_bytes()));
        let program = Program { name: path.display().to_string(), path, elf };
        let (id, what) = refusal(&program, &entry, &target, &Source::Variable, &wanted)?;
        match (is_of_program(id), &named) {
            (true, None) => None,
            (true, Some(_)) => Some(Finding::new(id, format!("{}: {what}", program.name))),
            (false, _) => Some(Finding::new(id, what)),
        }
    }
}

/// The program that a command starts, where it is on this machine: after `exec`, assignments, and programs that only
/// start others. Of a script the interpreter.
fn program(words: &[String]) -> Option<PathBuf> {
    let mut words = words.iter().map(String::as_str);
    loop {
        let word = words.next()?;
        match word.rsplit('/').next().unwrap_or(word) {
            "exec" | "env" | "nohup" | "tini" | "dumb-init" | "--" => {}
            "gosu" | "su-exec" => {
                words.next()?;
            }
            _ if is_assignment(word) => {}
            _ => return interpreter(located(word)?),
        }
    }
}

fn is_assignment(word: &str) -> bool {
    let name = word.split_once('=').map(|it| it.0);
    name.is_some_and(|it| !it.is_empty() && !it.contains('/'))
}

fn located(word: &str) -> Option<PathBuf> {
    if word.contains('/') {
        let path = Path::new(word);
        return (path.is_absolute() && path.is_file()).then(|| path.to_owned());
    }
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(word)).find(|it| it.is_file())
}

/// What the kernel starts for a script; else the program itself.
fn interpreter(path: PathBuf) -> Option<PathBuf> {
    let bytes = fs::read(&path).ok()?;
    let Some(line) = bytes.strip_prefix(b"#!") else {
        return Some(path);
    };
    let line = line.split(|it| *it == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line).into_owned();
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        [env, name] if env.ends_with("/env") => located(name),
        [first, ..] => located(first),
        [] => None,
    }
}
