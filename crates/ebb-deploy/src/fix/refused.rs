//! Why nothing is proposed for a file. One line: what stands in the way, then what to do.

use std::fmt;

/// A file that is left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// The file is not understood.
    pub(super) fn not_understood(what: impl Into<String>) -> Self {
        Self {
            kind: RefusedKind::NotUnderstood,
            what: what.into(),
            remedy: "nothing was changed".to_owned(),
        }
    }

    /// A change could not work.
    pub(super) fn cannot(what: impl Into<String>, remedy: &str) -> Self {
        Self {
            kind: RefusedKind::CannotWork,
            what: what.into(),
            remedy: format!("nothing was changed: {remedy}"),
        }
    }

    /// With another remedy.
    #[must_use]
    pub(super) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}; {}", self.what, self.remedy)
    }
}

impl std::error::Error for Refused {}
