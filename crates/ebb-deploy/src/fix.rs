//! The change that puts an allocator in charge, written into the files that start a service: the
//! smallest one, each line with its reason, everything else as it was.
//!
//! - [`desired`]: which allocator is wanted, and which variables have to change for it.
//! - [`edit`]: changes of a text, applied and shown.
//! - [`dockerfile`], [`compose`], [`kubernetes`], [`mod@unit`], [`procfile`], [`supervisor`], [`script`], [`manifest`], [`python`]: one
//!   kind of file each.
//! - `insert`: a new entry in a YAML text, in the style of the existing entries.
//! - [`policy`]: an admission policy for a cluster, which changes no file.
//! - [`report`]: what is proposed, as text and as JSON.
//! - [`Refused`]: why nothing is proposed.
//!
//! Pure: texts in, edits out. The caller reads, checks the result and writes. The files are read by the readers
//! of [`crate::check`].

use std::fmt::Display;

use crate::check::declared::Service;

pub mod compose;
pub mod desired;
pub mod dockerfile;
pub mod edit;
mod insert;
pub mod kubernetes;
pub mod manifest;
pub mod policy;
pub mod procfile;
pub mod python;
pub mod report;
pub mod script;
pub mod source;
pub mod supervisor;
pub mod unit;

pub use desired::Desired;
pub use edit::Edit;

use desired::Setting;

/// Which services of a file are changed.
pub type Chosen<'a> = &'a dyn Fn(&Service) -> bool;

/// What is proposed for one text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fixed {
    /// The changes.
    pub edits: Vec<Edit>,
    /// What the user should know or do besides.
    pub notes: Vec<String>,
}

impl Fixed {
    fn extend(&mut self, part: Fixed) {
        self.edits.extend(part.edits);
        self.notes.extend(part.notes);
    }
}

/// Why nothing is proposed for a file: the obstacle, then what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}; {remedy}")]
pub struct Refused {
    /// The kind of obstacle.
    pub kind: RefusedKind,
    /// The obstacle and its place.
    pub what: String,
    /// What to do.
    pub remedy: String,
}

/// The kinds of obstacle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedKind {
    /// The file, or a name that the user gave, is not understood.
    NotUnderstood,
    /// A change could not work, or would take something from the user.
    CannotWork,
}

impl Refused {
    fn not_understood(what: impl Into<String>) -> Self {
        Self { kind: RefusedKind::NotUnderstood, what: what.into(), remedy: "nothing was changed".to_owned() }
    }

    /// The file called `name` is not understood.
    fn in_file(name: &str, why: impl Display) -> Self {
        Self::not_understood(format!("{name}: {why}"))
    }

    /// The change would reach further than it is meant to.
    fn alters_more(name: &str) -> Self {
        Self::in_file(name, "the change would alter other parts of the file")
    }

    /// A change could not work.
    fn cannot(what: impl Into<String>, remedy: &str) -> Self {
        Self { kind: RefusedKind::CannotWork, what: what.into(), remedy: format!("nothing was changed: {remedy}") }
    }

    #[must_use]
    fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }
}

/// Why a file whose variable has its value from outside is not changed, and what to do, in the words of a kind of file.
struct OutsideValue {
    why: &'static str,
    remedy: &'static str,
}

impl OutsideValue {
    /// Of files that take variables from other files or from where they are read.
    const FILE: OutsideValue =
        OutsideValue { why: "is set outside this file", remedy: "write its value here, or change it where it is set" };
}

/// The variables of a service that have to change, and notes about it. `at` names the service.
fn changes(
    desired: &Desired,
    library: &str,
    service: &Service,
    at: &str,
    outside: &OutsideValue,
) -> Result<(Vec<Setting>, Fixed), Refused> {
    if let Some(name) = service.from_outside(desired.names()) {
        let why = format!("{at}: {name} {}", outside.why);
        return Err(Refused::cannot(why, outside.remedy));
    }
    let changes = desired.changes(library, &|name| service.variable(name)?.value.clone());
    let noted = Fixed { edits: Vec::new(), notes: changes.notes };
    Ok((changes.settings, noted))
}

/// A value as a word for a shell; an empty one stays empty.
fn quoted(value: &str) -> Result<String, Refused> {
    if value.is_empty() {
        return Ok(String::new());
    }
    let quoted = shlex::try_quote(value).map_err(|error| Refused::cannot(error.to_string(), "choose another value"))?;
    Ok(quoted.into_owned())
}

#[cfg(test)]
mod tests;
