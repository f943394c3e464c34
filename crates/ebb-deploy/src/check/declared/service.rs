//! A service as a file declares it.

use std::ops::Range;

use crate::check::finding::Id;
use crate::check::start::Start;

/// A service as a file declares it.
#[derive(Clone, Debug, Default)]
pub struct Service {
    /// Its name, with that of its object where there is one.
    pub name: String,
    /// The line where it begins.
    pub line: usize,
    /// Its variables, in order.
    pub env: Vec<Variable>,
    /// What is started, where the file says so.
    pub start: Option<Start>,
    /// The image it runs in.
    pub image: Option<String>,
    /// Whether that image is built from a Dockerfile that the file names.
    pub is_built: bool,
    /// What comes from outside of its image.
    pub mounts: Vec<Mount>,
    /// What its reader has to say besides.
    pub remarks: Vec<Remark>,
}

/// A result that only the reader of a file can see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// Counted from one.
    pub line: usize,
    /// Id of the result.
    pub id: Id,
    /// In one sentence without a full stop.
    pub what: String,
    /// Whether the check passes all the same.
    pub is_note: bool,
}

impl Remark {
    /// One with the weight of its identifier.
    pub fn error(line: usize, id: Id, what: impl Into<String>) -> Self {
        Self { line, id, what: what.into(), is_note: false }
    }

    /// The same as a note.
    #[must_use]
    pub fn as_note(mut self) -> Self {
        self.is_note = true;
        self
    }
}

/// A file or folder from outside of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Its path on the host, relative to the file that declares it; none where that is not known.
    pub from: Option<String>,
    /// Its path inside the service.
    pub to: String,
}

impl Mount {
    /// The rest of `path` below this mount, empty for the mount itself; none of a path elsewhere.
    pub(super) fn rest<'a>(&self, path: &'a str) -> Option<&'a str> {
        let rest = path.strip_prefix(self.to.trim_end_matches('/'))?;
        (rest.is_empty() || rest.starts_with('/')).then_some(rest)
    }

    /// Whether the service finds `path` in it.
    pub fn covers(&self, path: &str) -> bool {
        self.rest(path).is_some()
    }
}

/// A variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its value; none where it comes from elsewhere (a secret, the shell that starts all).
    pub value: Option<String>,
    /// Counted from one.
    pub line: usize,
    /// Place of the value, quotes included.
    pub at: Range<usize>,
}

impl Service {
    /// What the last variable of that name says.
    pub fn variable(&self, name: &str) -> Option<&Variable> {
        self.env.iter().rev().find(|it| it.name == name)
    }

    /// The first of these variables that is set, and not here.
    pub fn from_outside<'a>(&self, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
        let comes = |name: &&str| self.variable(name).is_some_and(|it| it.value.is_none());
        names.into_iter().find(comes)
    }

    /// Whether the word of a user means it: its whole name, or the last part.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.name.rsplit('/').next() == Some(name)
    }
}
