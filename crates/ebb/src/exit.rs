//! The exit codes of `ebb` and the one type that all its failures end in.
//!
//! A command returns an [`Exit`] or an `ExitCode`, or a [`Failure`], which the command line prints as one line
//! on stderr. A code is written here and nowhere else; `docs/json.md` explains them to users.

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use ebb_allocators::{Allocator, SettingError};
use ebb_deploy::check::Answer;
use ebb_deploy::fix::{Refused, RefusedKind};
use ebb_process::library::Unresolved;
use ebb_process::target::NotFound;

/// How `ebb` ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done; nothing to complain about.
    Ok = 0,
    /// The process keeps memory that it does not use.
    Retention = 10,
    /// The live heap itself grows.
    LiveHeapGrows = 11,
    /// The memory is not heap.
    NotHeap = 12,
    /// More than one cause.
    Mixed = 13,
    /// The allocator is not in charge of every process, or not with the settings it was given.
    NotInCharge = 14,
    /// A variant holds more after the rest than `--max-rest` allows, or never came to its rest.
    AboveMaxRest = 15,
    /// A trial is worse than an earlier one.
    Worse = 16,
    /// `ebb fix` would change the file; nothing is written.
    WouldChange = 17,
    /// There is not enough evidence for a verdict.
    NotEnoughEvidence = 20,
    /// A right is missing.
    Permission = 30,
    /// The request cannot work with this program or on this system.
    Unsupported = 31,
    /// Something that is needed is not installed.
    Missing = 32,
    /// A file is not what it was when it was read or written: nothing is overwritten.
    Changed = 33,
    /// The command line, or a file that it names, is wrong.
    Usage = 64,
    /// The system refused something that it should not refuse, or `ebb` has a defect.
    Internal = 70,
    /// An output file could not be written, for example because the disk is full (sysexits' EX_IOERR).
    NotWritten = 74,
    /// Not now: it may work when it is tried again (sysexits' EX_TEMPFAIL).
    TryAgain = 75,
    /// The command to run is there but cannot be executed (as in a shell).
    NotExecutable = 126,
    /// The command to run is not there (as in a shell).
    CommandNotFound = 127,
    /// Interrupted by Ctrl-C; what was measured until then is kept.
    Interrupted = 130,
    /// The reader of our output went away (what a shell reports for SIGPIPE).
    BrokenPipe = 141,
}

impl Exit {
    /// The number that the parent process sees.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// One code for several: the only one that is not success, or [`Exit::Mixed`] if they differ.
    pub fn of_all(all: impl Iterator<Item = Exit>) -> Exit {
        let mut codes = all.filter(|code| *code != Exit::Ok);
        let Some(first) = codes.next() else {
            return Exit::Ok;
        };
        if codes.all(|code| code == first) { first } else { Exit::Mixed }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.code())
    }
}

/// The error, its place, and what to do: becomes one line on stderr.
#[derive(Clone, Debug)]
pub struct Failure {
    exit: Exit,
    what: String,
    remedy: Option<String>,
}

impl Failure {
    /// A failure that ends the program with `exit`. `what` says what was wrong and where; it starts
    /// in lower case and has no full stop.
    pub fn new(exit: Exit, what: impl Into<String>) -> Self {
        Self { exit, what: what.into(), remedy: None }
    }

    /// A wrong command line, or a wrong file that it names.
    pub fn usage(what: impl Into<String>) -> Self {
        Self::new(Exit::Usage, what)
    }

    /// A failure about a file or a folder.
    pub fn at(exit: Exit, path: &Path, why: impl fmt::Display) -> Self {
        Self::new(exit, format!("{}: {why}", path.display()))
    }

    /// A target that was gone before it was read.
    pub fn ended(target: &str) -> Self {
        Self::new(Exit::NotEnoughEvidence, format!("{target} ended before it was read"))
    }

    /// Adds what the user can do about it.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// The code to end with.
    pub fn exit(&self) -> Exit {
        self.exit
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // One failure is one line, whatever an error of the system or a parser holds.
        let mut text = self.what.replace('\n', " ");
        if let Some(remedy) = &self.remedy {
            text.push_str("; ");
            text.push_str(&remedy.replace('\n', " "));
        }
        out.write_str(text.trim_end())
    }
}

impl std::error::Error for Failure {}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        let exit = match error.kind() {
            std::io::ErrorKind::BrokenPipe => Exit::BrokenPipe,
            std::io::ErrorKind::PermissionDenied => Exit::Permission,
            _ => Exit::Internal,
        };
        Self::new(exit, error.to_string())
    }
}

impl From<Answer> for Exit {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::InCharge => Exit::Ok,
            Answer::NotInCharge => Exit::NotInCharge,
            Answer::NoPermission => Exit::Permission,
            Answer::Unknown => Exit::NotEnoughEvidence,
        }
    }
}

/// A name that is in no list of allocators; `or` is what else may be given.
pub fn unknown_allocator(name: &str, or: &str) -> Failure {
    let known = Allocator::known_names();
    Failure::usage(format!("allocator \"{name}\" is not known; known are {known}{or}"))
}

impl From<Unresolved> for Failure {
    fn from(error: Unresolved) -> Self {
        let exit = match error {
            Unresolved::Unknown { .. } => Exit::Usage,
            Unresolved::NotInstalled { .. } => Exit::Missing,
            Unresolved::DoesNotFit { .. } | Unresolved::Unusable { .. } => Exit::Unsupported,
            Unresolved::NotPlaced(_) => Exit::NotWritten,
        };
        Self::new(exit, error.to_string())
    }
}

impl From<SettingError> for Failure {
    fn from(error: SettingError) -> Self {
        Self::usage(error.to_string())
    }
}

impl From<NotFound> for Failure {
    fn from(error: NotFound) -> Self {
        Self::usage(error.to_string())
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::new(Exit::Internal, error.to_string())
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        let exit = match refused.kind {
            RefusedKind::NotUnderstood => Exit::Usage,
            RefusedKind::CannotWork => Exit::Unsupported,
        };
        Self::new(exit, refused.what).remedy(refused.remedy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line() {
        let failure = Failure::new(Exit::Usage, "bad\nthing").remedy("do\nthis\n");
        assert_eq!(failure.to_string(), "bad thing; do this");
        assert_eq!(failure.exit().code(), 64);
    }

    #[test]
    fn a_reader_that_went_away_is_no_error_of_ours() {
        let error = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        assert_eq!(Failure::from(error).exit(), Exit::BrokenPipe);
    }
}
