//! An image under judgement, and the files that its builder is given.

use super::image::{Stage, Stages};
use crate::check::finding::{Finding, Id};
use crate::check::start::Start;

/// An image under judgement.
pub(super) struct Image<'a> {
    pub(super) name: &'a str,
    pub(super) stages: &'a Stages,
    pub(super) chain: Vec<&'a Stage>,
    pub(super) start: Option<Start>,
    pub(super) context: &'a dyn Context,
}

impl Image<'_> {
    pub(super) fn at(&self, line: usize, id: Id, what: String) -> Finding {
        Finding::new(id, what).in_file(format!("{}:{line}", self.name))
    }
}

/// The files that the builder is given.
pub trait Context {
    /// The text of one.
    fn read(&self, file: &str) -> Option<String>;

    /// Why the builder has no such file; none where it has, or where that is not known.
    fn lacks(&self, _file: &str) -> Option<String> {
        None
    }
}

impl<F: Fn(&str) -> Option<String>> Context for F {
    fn read(&self, file: &str) -> Option<String> {
        self(file)
    }
}
