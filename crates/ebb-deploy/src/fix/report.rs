//! What is proposed or was done, as text and as JSON. Pure; built by the command.

use std::path::Path;

use serde::Serialize;

use super::edit::Line;
use crate::check::Report as Check;

/// The version of the JSON; grows when a field changes its meaning or goes.
const FORMAT: u32 = 1;

/// Result of `ebb fix`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// The file puts the allocator in charge already, or no allocator would help.
    Nothing,
    /// There is something to write.
    WouldChange,
    /// It is written.
    Written,
    /// What was written is taken back.
    Undone,
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct File {
    /// Its path, relative ones as they were named.
    pub path: String,
    /// Whether it is new.
    pub created: bool,
    /// The difference, as `patch -p1` takes it; empty for a library that is copied.
    pub diff: String,
    /// Each change with its reason.
    pub lines: Vec<Line>,
}

impl File {
    /// Of a library that is copied or removed.
    pub fn library(path: &Path) -> Self {
        let path = path.display().to_string();
        Self { path, created: true, diff: String::new(), lines: Vec::new() }
    }
}

/// The whole result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    format: u32,
    /// The file, as it was named.
    file: String,
    /// Which kind it is.
    pub kind: &'static str,
    /// The outcome.
    pub action: Action,
    /// What is to be in charge; `null` where nothing is to change it.
    pub allocator: Option<String>,
    /// Why: the user, or what a trial came to.
    pub why: String,
    /// The files that change.
    pub files: Vec<File>,
    /// What the user should know or do besides.
    pub notes: Vec<String>,
    /// What `ebb check` says of the result; `null` where it cannot be said before the program runs.
    pub check: Option<Check>,
}

impl Report {
    /// A result without anything in it.
    pub fn new(file: &str, kind: &'static str, action: Action, why: String) -> Self {
        Self {
            format: FORMAT,
            file: file.to_owned(),
            kind,
            action,
            allocator: None,
            why,
            files: Vec::new(),
            notes: Vec::new(),
            check: None,
        }
    }

    /// One line of JSON.
    pub fn json(&self) -> String {
        crate::check::report::json(self)
    }

    /// For stdout: the differences, then a line for each change with its reason. `patch` skips those.
    pub fn text(&self) -> String {
        let mut text: String = self.files.iter().map(|it| it.diff.as_str()).collect();
        for file in &self.files {
            for line in &file.lines {
                let shown = line.text.lines().map(str::trim).collect::<Vec<_>>().join(" / ");
                let shown = if shown.is_empty() { "(removed)" } else { &shown };
                text += &format!("{}:{}: {shown}\n    {}\n", file.path, line.line, line.why);
            }
        }
        text
    }
}
