//! This machine, for files of services that run on it: whether the library is here, and whether the loader would put it
//! in charge of the service's program.

use std::path::Path;

use ebb_deploy::check::Finding;
use ebb_deploy::check::declared::{Host, Service};
use ebb_deploy::check::library::{EntryFile, Target};
use ebb_deploy::check::process::Wanted;
use ebb_process::machine::page_bytes;
use ebb_process::program::{Program as Started, search_path};
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
        let is_known = named.is_some();
        // Of a program that is not known only the architecture counts, which is the shell's.
        let Started { image, elf, .. } = named.or_else(|| find("sh"))?;
        let root = Root::own();
        let entry = Loader::of(&root, &elf).entry(entry);
        if matches!(entry.file, EntryFile::Missing) {
            return None;
        }
        let wanted = Wanted::from_preload(std::slice::from_ref(&entry))?;
        let target = Target::of(&elf, Some(page_bytes()));
        let program = Program { name: image.display().to_string(), path: image, elf };
        let (id, what) = refusal(&program, &entry, &target, &Source::Variable, &wanted)?;
        match (is_of_program(id), is_known) {
            (true, false) => None,
            (true, true) => Some(Finding::new(id, format!("{}: {what}", program.name))),
            (false, _) => Some(Finding::new(id, what)),
        }
    }
}

/// The program that a command starts, where it is on this machine: after `exec`, assignments, and programs that only
/// start others. Of a script the interpreter.
fn program(words: &[String]) -> Option<Started> {
    let mut words = words.iter().map(String::as_str);
    loop {
        let word = words.next()?;
        match word.rsplit('/').next().unwrap_or(word) {
            "exec" | "env" | "nohup" | "tini" | "dumb-init" | "--" => {}
            "gosu" | "su-exec" => {
                words.next()?;
            }
            _ if is_assignment(word) => {}
            _ => return find(word),
        }
    }
}

fn is_assignment(word: &str) -> bool {
    let name = word.split_once('=').map(|it| it.0);
    name.is_some_and(|it| !it.is_empty() && !it.contains('/'))
}

fn find(word: &str) -> Option<Started> {
    // A relative path is of a folder that is not known here.
    let is_relative = word.contains('/') && !word.starts_with('/');
    (!is_relative).then(|| Started::find(word.as_ref(), &search_path()).ok())?
}
