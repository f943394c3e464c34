//! A program that is ready to be started, and the way to become it.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use ebb_allocators::Choice;
use ebb_process::inherited;
use nix::errno::Errno;

use crate::exit::{Exit, Failure};

pub(super) struct Start {
    pub(super) file: PathBuf,
    /// Its arguments, its own name in front.
    pub(super) arguments: Vec<OsString>,
    /// Its whole environment.
    pub(super) environment: BTreeMap<OsString, OsString>,
    /// The requested allocator.
    pub(super) allocator: String,
    /// What it is to run on.
    pub(super) choice: Choice,
    /// The program of the only descendant that gets it, where not all do.
    pub(super) child: Option<PathBuf>,
}

/// The failure of an `execve` that did not work.
pub(super) fn not_started(start: &Start, errno: Errno) -> Failure {
    let exit = match errno {
        Errno::ENOENT => Exit::CommandNotFound,
        _ => Exit::NotExecutable,
    };
    Failure::at(exit, &start.file, errno.desc())
}

/// Replaces this process; the failure of that is all that can come back.
pub(super) fn become_program(start: &Start) -> Failure {
    let text =
        |text: &OsStr| CString::new(text.as_bytes()).map_err(|_| Failure::usage("an argument contains a zero byte"));
    let strings = || -> Result<_, Failure> {
        let file = text(start.file.as_os_str())?;
        let arguments: Result<Vec<_>, _> = start.arguments.iter().map(|it| text(it)).collect();
        let entries = start.environment.iter().map(|(name, value)| [name, OsStr::new("="), value]);
        let entries = entries.map(|parts| text(&parts.into_iter().collect::<OsString>()));
        Ok((file, arguments?, entries.collect::<Result<Vec<_>, _>>()?))
    };
    let (file, arguments, environment) = match strings() {
        Ok(strings) => strings,
        Err(failure) => return failure,
    };
    if let Err(errno) = inherited::restore() {
        return Failure::new(Exit::Internal, format!("SIGPIPE cannot be restored: {errno}"));
    }
    // Not the standard library's way: it would empty the mask of blocked signals, too.
    match nix::unistd::execve(&file, &arguments, &environment) {
        Ok(never) => match never {},
        Err(errno) => not_started(start, errno),
    }
}
