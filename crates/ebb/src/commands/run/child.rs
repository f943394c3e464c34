//! `--child`: a wrapper in front of PATH that starts one program on the allocator. Everything else, the program that
//! `ebb run` becomes included, runs as it is.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use ebb_allocators::Environment;
use ebb_process::program::Program;
use ebb_process::{private, whole_file};
use sha2::{Digest, Sha256};

use crate::exit::{Exit, Failure};

/// A child that gets the allocator.
pub(super) struct Child {
    /// The program that runs in the end.
    pub(super) image: PathBuf,
    /// The folder of its wrapper, for the front of PATH.
    folder: PathBuf,
}

/// A name that is searched for in PATH.
pub(super) fn name(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains('/') || text.starts_with('-') {
        return Err(
            "give a program's name as PATH has it; a program that is started by its path does not pass a wrapper"
                .to_owned(),
        );
    }
    Ok(text.to_owned())
}

impl Child {
    /// Writes the wrapper of `program`, which is called `name`. The same wrapper is the same file.
    pub(super) fn wrap(
        name: &str,
        program: &Program,
        change: &Environment,
        variables: &[(String, String)],
    ) -> Result<Self, Failure> {
        let text = script(name, program, change, variables);
        let digest: String = Sha256::digest(&text).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let failed = |error: &dyn std::fmt::Display| {
            Failure::new(Exit::NotWritten, format!("the wrapper of {name}: {error}"))
                .remedy("set XDG_CACHE_HOME to a folder of this user on a file system without noexec")
        };
        let folder = private::cache(&format!("child-{digest}")).map_err(|error| failed(&error))?;
        let path = folder.join(name);
        if std::fs::read(&path).ok().as_ref() != Some(&text) {
            whole_file::replace(&path, &text, Some(0o755)).map_err(|error| failed(&error))?;
        }
        let image = program.image.canonicalize().unwrap_or_else(|_| program.image.clone());
        Ok(Self { image, folder })
    }

    pub(super) fn path(&self, search_path: &OsStr) -> OsString {
        let mut path = self.folder.clone().into_os_string();
        path.push(":");
        path.push(search_path);
        path
    }
}

/// A script for every shell: the variables, then the program in the same process.
fn script(name: &str, program: &Program, change: &Environment, variables: &[(String, String)]) -> Vec<u8> {
    let mut text = format!("#!/bin/sh\n# Written by `ebb run --child {name}`.\n").into_bytes();
    let given = variables.iter().map(|(name, value)| (OsStr::new(name), Some(OsStr::new(value))));
    let changed = change.changes.iter().map(|(name, value)| (name.as_os_str(), value.as_deref()));
    for (name, value) in given.chain(changed) {
        let verb: &[u8] = if value.is_some() { b"export " } else { b"unset " };
        text.extend_from_slice(verb);
        text.extend_from_slice(name.as_bytes());
        if let Some(value) = value {
            text.push(b'=');
            text.extend_from_slice(&quoted(value));
        }
        text.push(b'\n');
    }
    text.extend_from_slice(b"exec ");
    if program.by_shell {
        text.extend_from_slice(b"/bin/sh ");
    }
    text.extend_from_slice(&quoted(program.path.as_os_str()));
    text.extend_from_slice(b" \"$@\"\n");
    text
}

/// A word of a shell. Neither an argument nor a variable can contain a NUL, the only byte that has no quoted form.
fn quoted(word: &OsStr) -> Cow<'_, [u8]> {
    shlex::bytes::try_quote(word.as_bytes()).unwrap_or_default()
}
