//! A program that is ready to be started.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use ebb_allocators::Choice;
use nix::errno::Errno;

use crate::exit::{Exit, Failure};

/// A program that is ready to be started.
pub(super) struct Start {
    /// The file to execute.
    pub(super) file: PathBuf,
    /// Its arguments, its own name in front.
    pub(super) arguments: Vec<OsString>,
    /// Its whole environment.
    pub(super) environment: BTreeMap<OsString, OsString>,
    /// The requested allocator.
    pub(super) allocator: String,
    /// What it is to run on.
    pub(super) choice: Choice,
}

/// The failure of an `execve` that did not work.
pub(super) fn not_started(start: &Start, errno: Errno) -> Failure {
    let exit = match errno {
        Errno::ENOENT => Exit::CommandNotFound,
        _ => Exit::NotExecutable,
    };
    Failure::new(exit, format!("{}: {}", start.file.display(), errno.desc()))
}
